package ipc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Config sets up a channel. Sizes are in bytes.
type Config struct {
	Life     uint32
	Backing  shm.Backing
	MaxArena int64 // the part of the up file that the stub may reserve; default 1 GiB
	UpSize   int64 // sparse size of the up file; default a quarter more than MaxArena
	// Charge is called when the stub wants to reserve n more bytes than FreeArena and earlier
	// grants. Refund is called when the stub has given bytes back. nil grants everything.
	Charge    func(n int64) bool
	Refund    func(n int64)
	FreeArena int64
	// Spilled is called before a body of n bytes is copied to the heap, with the receive lock held;
	// done is called when its frame has been handled. nil skips this.
	Spilled func(n int64) (done func())
	// MaxPending limits the bytes that wait for room in the down ring. Default 16 MiB.
	MaxPending int
	// Linger is called before the reader sleeps. It returns for how long the reader should look for
	// frames first, between the work of other goroutines. Lingered receives the longest yield of
	// that time. Both may be nil.
	Linger   func() time.Duration
	Lingered func(longest time.Duration)
	// Broken is called, by any goroutine, when frames that wait for room cannot be sent any more.
	// It may be nil.
	Broken func(error)
	Log    zerolog.Logger // for failures outside of calls
}

// Channel is this side of the connection to one life of a stub.
type Channel struct {
	config Config
	down   *shm.Region
	up     *shm.Region
	arena  *shm.Arena
	peer   PeerFiles

	downBell *bell // rung by this side
	upBell   *bell // rung by the stub
	lifeline *os.File

	recv struct {
		sync.Mutex
		*Consumer
		closed bool // written with spin held too: either lock is enough for reading
	}
	send struct {
		sync.Mutex
		*Producer
		asleep  *atomic.Uint32 // the stub's sleep word: untrusted, but any value is harmless
		rung    uint32         // value of asleep for which the bell was rung
		pending [][]byte       // frames that wait for room, oldest first
		bytes   int            // of pending
		planned uint64         // position at which the last of pending will end
		// withdrawn is this side's, begun the stub's: untrusted. See Withdraw.
		withdrawn, begun *atomic.Uint64
		retry            bool   // a retry is scheduled
		staged           []byte // frame between Begin and Commit, if it lies on the heap
		ended            bool   // the stub has closed its end: it accepts nothing
		closed           bool
	}
	grant grants // guarded by recv
	wake  struct {
		sync.Mutex
		word    *atomic.Uint32 // this side's sleep word, shared
		asleep  bool           // the reader sleeps or is about to
		spinner bool           // a spinning goroutine looks at the ring meanwhile
	}
	spin sync.Mutex // held by the one goroutine that spins
	ret  struct {
		returned  *atomic.Uint64 // this side's, shared; written under the arena's lock
		collected *atomic.Uint64 // the stub's: untrusted
		count     uint64
		overrun   atomic.Bool
	}
}

// PeerFiles are the stub's ends. The caller passes them on and closes them.
type PeerFiles struct {
	Down, Up         *os.File // read-only, read-write
	DownBell, UpBell *os.File // read end, write end
	Lifeline         *os.File // read end
}

// Close closes this process's copies.
func (p *PeerFiles) Close() {
	for _, f := range []*os.File{p.Down, p.Up, p.DownBell, p.UpBell, p.Lifeline} {
		if f != nil {
			_ = f.Close()
		}
	}
	*p = PeerFiles{}
}

// New creates the files and pipes of a new life.
func New(config Config) (*Channel, error) {
	if config.Backing == nil {
		config.Backing = shm.Memfd{}
	}
	if config.UpSize <= 0 {
		if config.MaxArena <= 0 {
			config.MaxArena = 1 << 30
		}
		config.UpSize = upSize(config.MaxArena)
	}
	if config.MaxPending <= 0 {
		config.MaxPending = 16 << 20
	}
	c := &Channel{config: config}
	if err := c.open(); err != nil {
		c.abandon()
		return nil, err
	}
	return c, nil
}

// open creates files, pipes and words. After an error, abandon closes them.
func (c *Channel) open() (err error) {
	config := &c.config
	if c.down, err = shm.NewRegion(config.Backing, shm.DownSize, shm.WriteAlone); err != nil {
		return fmt.Errorf("make down file: %w", err)
	}
	if err = c.down.Reserve(0, shm.DownSize); err != nil {
		return fmt.Errorf("reserve down file: %w", err)
	}
	if c.up, err = shm.NewRegionUpTo(config.Backing, config.UpSize, 64<<20, shm.ReadOnly); err != nil {
		return fmt.Errorf("make up file: %w", err)
	}
	if err = c.up.Reserve(0, shm.ArenaOffset); err != nil {
		return fmt.Errorf("reserve up file: %w", err)
	}
	if config.MaxArena <= 0 || config.MaxArena > c.up.Size()-shm.ArenaOffset {
		config.MaxArena = c.up.Size() - shm.ArenaOffset
	}
	if err = c.openPipes(); err != nil {
		return err
	}
	// The stub cannot write the down file, so only this side writes it.
	if c.peer.Down, err = c.down.OpenReadOnly(); err != nil {
		return err
	}
	// The stub's descriptor of the up file is a duplicate, so that both sides
	// close their own.
	fd, err := unix.FcntlInt(c.up.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("duplicate up file", err)
	}
	c.peer.Up = os.NewFile(uintptr(fd), "up")

	if c.recv.Consumer, err = NewConsumer("up", c.down, c.up, config.Life, FlagSpilled); err != nil {
		return err
	}
	if c.send.Producer, err = NewProducer("down", c.down, c.up, config.Life); err != nil {
		return err
	}
	c.send.asleep = c.up.Uint32(shm.SleepOffset)
	c.send.withdrawn, c.send.begun = c.down.Uint64(shm.AheadOffset), c.up.Uint64(shm.AheadOffset)
	c.wake.word = c.down.Uint32(shm.SleepOffset)
	c.beginGrants()
	c.ret.returned, c.ret.collected = c.down.Uint64(shm.ReturnOffset), c.up.Uint64(shm.ReturnOffset)
	// One reference is the channel's, one the arena's: responses in the arena outlive the channel.
	c.up.Retain()
	c.arena = shm.NewArena(c.up, config.MaxArena, c.giveBack)

	c.down.Uint32(shm.VersionOffset).Store(shm.Version)
	c.down.Uint32(shm.LifeOffset).Store(config.Life)
	c.down.Uint32(shm.MagicOffset).Store(shm.Magic)
	return nil
}

func (c *Channel) openPipes() error {
	downNear, downFar, err := pipe(false)
	if err != nil {
		return err
	}
	c.peer.DownBell = downFar
	if c.downBell, err = newBell(downNear); err != nil {
		_ = downNear.Close()
		return err
	}
	upNear, upFar, err := pipe(true)
	if err != nil {
		return err
	}
	c.peer.UpBell = upFar
	if c.upBell, err = newBell(upNear); err != nil {
		_ = upNear.Close()
		return err
	}
	c.lifeline, c.peer.Lifeline, err = pipe(false)
	return err
}

// abandon undoes a New that failed midway.
func (c *Channel) abandon() {
	c.peer.Close()
	for _, b := range []*bell{c.downBell, c.upBell} {
		if b != nil {
			_ = b.file.Close()
		}
	}
	if c.lifeline != nil {
		_ = c.lifeline.Close()
	}
	if c.arena != nil {
		c.arena.Close()
	}
	for _, r := range []*shm.Region{c.down, c.up} {
		if r != nil {
			r.Release()
		}
	}
}

// Peer returns the stub's ends, once.
func (c *Channel) Peer() PeerFiles {
	p := c.peer
	c.peer = PeerFiles{}
	return p
}

// Attached is called when the stub has sent HELLO: the names are not needed any more.
func (c *Channel) Attached() error {
	return errors.Join(c.down.Unlink(), c.up.Unlink())
}

// Arena returns the stub's arena.
func (c *Channel) Arena() *shm.Arena { return c.arena }

// MaxArena returns the bytes that the stub may reserve in its arena.
func (c *Channel) MaxArena() int64 { return c.config.MaxArena }

// UpBytes returns the allocated bytes of the up file.
func (c *Channel) UpBytes() int64 {
	n, err := c.up.Reserved()
	if err != nil {
		return 0
	}
	return n
}

// giveBack writes a ticket to the return ring. The arena calls it under its lock and not after
// Close, so there is one producer and the ring is mapped.
func (c *Channel) giveBack(t shm.Ticket) {
	if c.ret.count-c.ret.collected.Load() >= shm.ReturnRingSlots {
		// The stub lent more than allowed; the next Receive ends its life.
		c.ret.overrun.Store(true)
		return
	}
	// Ordering: the ticket is stored before the count that announces it. The slot is free, because
	// the stub has collected its old ticket by its own word: a stub that lies loses its own
	// tickets.
	c.down.Uint64(shm.ReturnRingOffset + 8*int(c.ret.count%shm.ReturnRingSlots)).Store(uint64(t))
	c.ret.count++
	c.ret.returned.Store(c.ret.count)
}

// Close ends the channel: the lifeline and the bells close, no frame is sent or received any more,
// and the memory is released when the last response in it has been written.
func (c *Channel) Close() {
	// First no goroutine begins a frame any more. A second Close returns at once, while the first
	// may still wait for the goroutines below.
	c.send.Lock()
	closed := c.send.closed
	c.send.closed = true
	c.send.pending = nil
	c.send.Unlock()
	if closed {
		return
	}
	c.peer.Close()
	// Closing the lifeline ends the stub's process group; closing a bell wakes its reader. This
	// side's reader is Run, which returns.
	_ = c.lifeline.Close()
	_ = c.downBell.file.Close()
	_ = c.upBell.file.Close()
	// From here on no release writes to the return ring, which is about to be unmapped.
	c.arena.Close()
	// A goroutine that spins or receives still uses the mappings.
	c.spin.Lock()
	c.recv.Lock()
	c.send.Lock()
	c.down.Release()
	c.up.Release()
	c.recv.closed = true
	c.send.Unlock()
	c.recv.Unlock()
	c.spin.Unlock()
}

// now returns CLOCK_MONOTONIC in nanoseconds, the clock with which both sides stamp published
// frames. It is the clock of backend.Now, which this package may not import: the runtime reads the
// same clock, and only the epoch is measured here again.
func now() int64 { return int64(time.Since(epoch)) + epochNanos }

var epoch, epochNanos = func() (time.Time, int64) {
	var ts unix.Timespec
	t := time.Now()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return t, ts.Nano()
}()
