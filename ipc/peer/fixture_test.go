package peer

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

const Patience = time.Minute

// fixture has both sides of a connection in one process. The supervisor's channel is the real one.
type fixture struct {
	t        testing.TB
	Channel  *ipc.Channel
	Peer     *Peer
	Requests *shm.Region
	stop     func()
}

// NewFixture connects both sides. handle gets the supervisor's frames; if it is nil, they are
// dropped.
func NewFixture(t testing.TB, config ipc.Config, handle func(*ipc.Channel, ipc.Frame) error, route Route) *fixture {
	t.Helper()
	config.Life = 7
	if config.UpSize == 0 && config.MaxArena == 0 {
		config.UpSize = 64 << 20
	}
	channel, err := ipc.New(config)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := shm.NewRegion(shm.Memfd{}, 16<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	file, err := requests.OpenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	files := channel.Peer()
	if handle == nil {
		handle = func(*ipc.Channel, ipc.Frame) error { return nil }
	}
	r := &fixture{t: t, Channel: channel, Requests: requests}
	if r.Peer, err = Attach(Files{files.Down, files.Up, file, files.DownBell, files.UpBell}, route); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- channel.Run(func(f ipc.Frame) error { return handle(channel, f) }) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			channel.Close()
			_ = files.Lifeline.Close()
			if err := <-done; err != nil {
				t.Errorf("the channel's Run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		r.stop()
		r.Peer.Close()
		requests.Release()
	})
	return r
}

// Into returns a Route that puts all messages into one box.
func Into(box *Box) Route { return func(Message) *Box { return box } }

// Receive returns the next message for box.
func (r *fixture) Receive(box *Box) Message {
	r.t.Helper()
	m, err := r.Peer.Receive(box, nil, 0)
	if err != nil {
		r.t.Fatalf("Receive: %v", err)
	}
	return m
}

func SameBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes, want %d; they differ", what, len(got), len(want))
	}
}

// Within returns the next value of a channel and fails the test after Patience.
func Within[T any](t testing.TB, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(Patience):
		t.Fatalf("%s: nothing came within %v", what, Patience)
	}
	return value
}
