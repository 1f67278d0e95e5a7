package ipc

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/shm"
)

// peer is the stub's side of a channel, in Go, for tests of this side.
type peer struct {
	t        testing.TB
	Files    PeerFiles
	Down, Up []byte
	life     uint32

	head, tail uint64
}

func newPeer(t testing.TB, c *Channel) *peer {
	t.Helper()
	p := &peer{t: t, Files: c.Peer(), life: c.config.Life}
	var err error
	if p.Down, err = unix.Mmap(int(p.Files.Down.Fd()), 0, shm.DownSize, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	if p.Up, err = unix.Mmap(int(p.Files.Up.Fd()), 0, shm.ArenaOffset+1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Files.Close()
		_ = unix.Munmap(p.Down)
		_ = unix.Munmap(p.Up)
	})
	return p
}

// cell64 and cell32 are words of shared memory. Loads and stores of aligned
// words are whole; the addition orders a store before what follows it.
type (
	cell64 []byte
	cell32 []byte
)

var barrier atomic.Uint64

func Word(b []byte, offset int) cell64   { return b[offset : offset+8] }
func word32(b []byte, offset int) cell32 { return b[offset : offset+4] }

func (c cell64) Load() uint64 {
	barrier.Add(1)
	return le.Uint64(c)
}

func (c cell64) Store(v uint64) {
	le.PutUint64(c, v)
	barrier.Add(1)
}

func (c cell32) Load() uint32 {
	barrier.Add(1)
	return le.Uint32(c)
}

func (c cell32) Store(v uint32) {
	le.PutUint32(c, v)
	barrier.Add(1)
}

func (c cell32) Add(n uint32) { c.Store(c.Load() + n) }

// Receive takes the next frame, sleeping on the bell as the protocol says.
func (p *peer) Receive() (Frame, error) {
	sleep := word32(p.Up, shm.SleepOffset)
	for Word(p.Down, shm.TailOffset).Load() == p.head {
		sleep.Store(sleep.Load() | 1)
		if Word(p.Down, shm.TailOffset).Load() != p.head {
			sleep.Add(1)
			break
		}
		n, err := p.Files.DownBell.Read(make([]byte, 64))
		sleep.Add(1)
		if n == 0 || err != nil {
			return Frame{}, errors.New("end of file on the bell")
		}
	}
	ring := p.Down[shm.RingOffset:]
	at := p.head % shm.RingSize
	size := le.Uint32(ring[at:])
	if Kind(le.Uint16(ring[at+4:])) == Pad {
		p.advance(uint64(size))
		return p.Receive()
	}
	f := Frame{Kind: Kind(le.Uint16(ring[at+4:])), ID: le.Uint64(ring[at+16:])}
	f.Body = append(f.Body, ring[at+HeaderSize:at+uint64(size)]...)
	p.advance(uint64(Align8(int(size))))
	return f, nil
}

func (p *peer) advance(n uint64) {
	p.head += n
	Word(p.Up, shm.HeadOffset).Store(p.head)
}

// Send publishes a frame; it waits for room.
func (p *peer) Send(kind Kind, id uint64, body []byte) {
	size := HeaderSize + len(body)
	ring := p.Up[shm.RingOffset : shm.RingOffset+shm.RingSize]
	at := p.tail % shm.RingSize
	if rest := shm.RingSize - at; uint64(Align8(size)) > rest {
		p.waitForRoom(rest)
		le.PutUint32(ring[at:], uint32(rest))
		le.PutUint32(ring[at+4:], 0)
		p.publish(rest)
		at = 0
	}
	p.waitForRoom(uint64(Align8(size)))
	putHeader(ring[at:], size, kind, 0, p.life, id)
	copy(ring[at+HeaderSize:], body)
	p.publish(uint64(Align8(size)))
}

func (p *peer) waitForRoom(n uint64) {
	for p.tail+n-Word(p.Down, shm.HeadOffset).Load() > shm.RingSize {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

func (p *peer) publish(n uint64) {
	p.tail += n
	Word(p.Up, shm.PostedOffset).Store(uint64(now()))
	Word(p.Up, shm.TailOffset).Store(p.tail)
	if word32(p.Down, shm.SleepOffset).Load()&1 == 1 {
		_, _ = p.Files.UpBell.Write([]byte{1})
	}
}

func NewChannel(t testing.TB, config Config) (*Channel, *peer) {
	t.Helper()
	if config.Life == 0 {
		config.Life = 3
	}
	if config.UpSize == 0 {
		config.UpSize = 64 << 20
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, newPeer(t, c)
}

// Run receives in the background until the channel is closed; the returned
// function closes it and gives Run's result.
func Run(t testing.TB, c *Channel, handle Handler) (stop func() error) {
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
