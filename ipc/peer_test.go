package ipc_test

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// peer is the stub's side of a channel, written in Go for tests of the server's side.
type peer struct {
	t        testing.TB
	Files    ipc.PeerFiles
	Down, Up []byte
	down, up *shm.Region
	life     uint32

	head, tail uint64
}

func newPeer(t testing.TB, c *ipc.Channel) *peer {
	t.Helper()
	p := &peer{t: t, Files: c.Peer()}
	p.down, p.Down = attach(t, p.Files.Down, shm.ReadOnly, shm.DownSize)
	p.life = p.down.Uint32(shm.LifeOffset).Load()
	p.up, p.Up = attach(t, p.Files.Up, shm.ReadWrite, shm.ArenaOffset+1<<20)
	t.Cleanup(p.Files.Close)
	return p
}

// attach maps a file of a channel and also returns its first n bytes. PeerFiles closes the file,
// too: a second close is harmless, and the mapping no longer needs the file.
func attach(t testing.TB, file *os.File, access shm.Access, n uint64) (*shm.Region, []byte) {
	t.Helper()
	region, err := shm.Attach(file, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(region.Release)
	content, err := region.Bytes(0, n)
	if err != nil {
		t.Fatal(err)
	}
	return region, content
}

// DownWord returns a word of the server's file, which is read-only. UpWord returns one of the
// peer's.
func (p *peer) DownWord(offset int) *atomic.Uint64 { return p.down.Uint64(offset) }
func (p *peer) UpWord(offset int) *atomic.Uint64   { return p.up.Uint64(offset) }

// Receive returns the next frame. It sleeps on the bell as the protocol requires.
func (p *peer) Receive() (ipc.Frame, error) {
	sleep := p.up.Uint32(shm.SleepOffset)
	for p.DownWord(shm.TailOffset).Load() == p.head {
		sleep.Swap(sleep.Load() | 1)
		if p.DownWord(shm.TailOffset).Load() != p.head {
			sleep.Add(1)
			break
		}
		n, err := p.Files.DownBell.Read(make([]byte, 64))
		sleep.Add(1)
		if n == 0 || err != nil {
			return ipc.Frame{}, errors.New("end of file on the bell")
		}
	}
	ring := p.Down[shm.RingOffset:]
	at := p.head % shm.RingSize
	size := le.Uint32(ring[at:])
	if ipc.Kind(le.Uint16(ring[at+4:])) == ipc.Pad {
		p.advance(uint64(size))
		return p.Receive()
	}
	f := ipc.Frame{Kind: ipc.Kind(le.Uint16(ring[at+4:])), ID: le.Uint64(ring[at+16:])}
	f.Body = append(f.Body, ring[at+ipc.HeaderSize:at+uint64(size)]...)
	p.advance(uint64(ipc.Align8(int(size))))
	return f, nil
}

func (p *peer) advance(n uint64) {
	p.head += n
	p.UpWord(shm.HeadOffset).Store(p.head)
}

// Send publishes a frame. It waits until the ring has room.
func (p *peer) Send(kind ipc.Kind, id uint64, body []byte) {
	size := ipc.HeaderSize + len(body)
	ring := p.Up[shm.RingOffset : shm.RingOffset+shm.RingSize]
	at := p.tail % shm.RingSize
	if rest := shm.RingSize - at; uint64(ipc.Align8(size)) > rest {
		p.waitForRoom(rest)
		le.PutUint32(ring[at:], uint32(rest))
		le.PutUint32(ring[at+4:], 0)
		p.publish(rest)
		at = 0
	}
	p.waitForRoom(uint64(ipc.Align8(size)))
	ipc.PutHeader(ring[at:], size, kind, 0, p.life, id)
	copy(ring[at+ipc.HeaderSize:], body)
	p.publish(uint64(ipc.Align8(size)))
}

func (p *peer) waitForRoom(n uint64) {
	for deadline := time.Now().Add(time.Minute); p.tail+n-p.DownWord(shm.HeadOffset).Load() > shm.RingSize; {
		if time.Now().After(deadline) {
			p.t.Errorf("the ring had no room for %d bytes for a minute", n)
			runtime.Goexit()
		}
		runtime.Gosched()
	}
}

func (p *peer) publish(n uint64) {
	p.tail += n
	p.UpWord(shm.PostedOffset).Store(uint64(ipc.Now()))
	p.UpWord(shm.TailOffset).Swap(p.tail)
	if p.down.Uint32(shm.SleepOffset).Load()&1 == 1 {
		_, _ = p.Files.UpBell.Write([]byte{1})
	}
}

func newChannel(t testing.TB, config ipc.Config) (*ipc.Channel, *peer) {
	t.Helper()
	if config.Life == 0 {
		config.Life = 3
	}
	if config.UpSize == 0 {
		config.UpSize = 64 << 20
	}
	c, err := ipc.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, newPeer(t, c)
}

// run receives in the background until the channel is closed. The returned function closes it and
// returns Run's result.
func run(t testing.TB, c *ipc.Channel, handle ipc.Handler) (stop func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Run(handle) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		c.Close()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Error("Run did not return after Close")
			return os.ErrDeadlineExceeded
		}
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// Ask requests wanted bytes in total for the peer and returns its grant.
func (p *peer) Ask(number, wanted uint64) uint64 {
	p.t.Helper()
	p.UpWord(shm.GrantOffset).Store(wanted)
	p.UpWord(shm.AskedOffset).Store(number)
	_, _ = unix.Write(int(p.Files.UpBell.Fd()), []byte{1})
	testkit.Eventually(p.t, time.Minute, func() bool { return p.DownWord(shm.AskedOffset).Load() == number })
	return p.DownWord(shm.GrantOffset).Load()
}
