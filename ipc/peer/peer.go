package peer

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// ErrGone is the error of a connection whose server has ended.
var ErrGone = errors.New("the server has gone")

// Files are this side's ends of the connection, in the order in which a process is told their
// numbers. Attach takes ownership of them.
type Files struct {
	Down, Up, Requests *os.File // read-only, read-write, read-only
	DownBell, UpBell   *os.File // read end, write end
}

// Close closes the files.
func (f *Files) Close() {
	for _, file := range []*os.File{f.Down, f.Up, f.Requests, f.DownBell, f.UpBell} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Message is a received frame.
type Message struct {
	ipc.Frame
	Ahead bool // of EXECUTE: ask BeginAhead before the batch is begun
	// Lost is the error from reading a body that travelled in a block; mostly nil.
	Lost error
}

// Route returns the box for a message, or nil if it has handled the message itself. It is called in
// the order of the frames and must not wait for one.
type Route func(Message) *Box

// Peer is the stub's side of a connection to the supervisor.
type Peer struct {
	down, up *shm.Region
	bells    [2]*os.File // read and write end
	rung     [2]int      // their descriptors
	life     uint32
	route    Route

	reading sync.Mutex // held by the goroutine that reads
	in      *ipc.Consumer
	sleep   *atomic.Uint32 // ours, shared
	sleeps  uint32
	scratch [512]byte
	waiting struct {
		count atomic.Int32 // of boxes, for the goroutine that has read
		sync.Mutex
		boxes []*Box // of goroutines that do not read
	}
	spin Spin // of goroutines that do not wait for an answer

	sending sync.Mutex // held by the goroutine that writes the up ring
	out     *ipc.Producer
	asleep  *atomic.Uint32 // the server's sleep word
	seen    uint32         // value of asleep that was rung for

	// This side stores begun, the server stores withdrawn. See BeginAhead.
	begun, withdrawn *atomic.Uint64

	tickets  tickets
	requests requestsMapping
	arena    *Arena

	ended struct {
		once sync.Once
		yes  atomic.Bool   // for those who only look: mostly it is not
		done chan struct{} // closed at the end
		err  error         // set before
	}
}

// Attach maps the files and tells the server so. Each received message is passed to route. After an
// error the files are closed.
func Attach(files Files, route Route) (*Peer, error) {
	p := &Peer{bells: [2]*os.File{files.DownBell, files.UpBell}, route: route}
	p.ended.done = make(chan struct{})
	if err := p.attach(files); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Peer) attach(files Files) (err error) {
	defer func() {
		// shm.Attach has taken ownership of its files.
		for _, rest := range []struct {
			file  *os.File
			taken bool
		}{{files.Up, p.up != nil || err == nil}, {files.Requests, p.requests.requests != nil || err == nil}} {
			if !rest.taken {
				_ = rest.file.Close()
			}
		}
	}()
	if p.down, err = shm.Attach(files.Down, shm.ReadOnly); err != nil {
		return fmt.Errorf("the server's messages: %w", err)
	}
	if p.down.Size() < shm.DownSize {
		return ipc.Broken("file", "the server's file has %d bytes, want %d", p.down.Size(), shm.DownSize)
	}
	if magic := p.down.Uint32(shm.MagicOffset).Load(); magic != shm.Magic {
		return ipc.Broken("magic", "the server's file begins with %#08x, want %#08x", magic, shm.Magic)
	}
	if version := p.down.Uint32(shm.VersionOffset).Load(); version != shm.Version {
		return ipc.Broken("version", "the server speaks version %d of the protocol, this process %d", version, shm.Version)
	}
	if p.up, err = shm.Attach(files.Up, shm.ReadWrite); err != nil {
		return fmt.Errorf("the memory of outputs: %w", err)
	}
	if p.up.Size() < shm.ArenaOffset {
		return ipc.Broken("file", "this side's file has %d bytes, want %d", p.up.Size(), shm.ArenaOffset)
	}
	if err := p.requests.attach(p, files.Requests); err != nil {
		return fmt.Errorf("the memory of requests: %w", err)
	}
	p.rung = [2]int{int(files.DownBell.Fd()), int(files.UpBell.Fd())} // Fd makes them blocking
	if err := unix.SetNonblock(p.rung[1], true); err != nil {
		return os.NewSyscallError("set non-blocking", err)
	}
	p.life = p.down.Uint32(shm.LifeOffset).Load()
	if p.in, err = ipc.NewConsumer("down", p.up, p.down, p.life, ipc.FlagSpilled|ipc.FlagAhead); err != nil {
		return err
	}
	if p.out, err = ipc.NewProducer("up", p.up, p.down, p.life); err != nil {
		return err
	}
	p.sleep, p.asleep = p.up.Uint32(shm.SleepOffset), p.down.Uint32(shm.SleepOffset)
	p.begun, p.withdrawn = p.up.Uint64(shm.AheadOffset), p.down.Uint64(shm.AheadOffset)
	p.up.Uint32(shm.VersionOffset).Store(shm.Version)
	p.up.Uint32(shm.LifeOffset).Store(p.life)
	p.up.Uint32(shm.MagicOffset).Store(shm.Magic)
	return nil
}

// Close unmaps and closes everything. A goroutine that reads may still be returning, because the
// server has closed its side. No other call may be running or follow, and no Loan or Block may be
// in use. A process that exits need not call Close.
func (p *Peer) Close() {
	p.fail(ErrGone)
	p.reading.Lock()
	defer p.reading.Unlock()
	for _, region := range []*shm.Region{p.down, p.up, p.requests.requests} {
		if region != nil {
			region.Release()
		}
	}
	if p.requests.pages != nil {
		p.requests.pages.Close()
	}
	for _, bell := range p.bells {
		_ = bell.Close()
	}
}

// Done returns a channel that is closed when the connection has ended; Err has the reason.
func (p *Peer) Done() <-chan struct{} { return p.ended.done }

// Err returns the reason for the end of the connection, or nil while it is open: ErrGone, an
// *ipc.ProtocolError if the server has broken the protocol, or a system error.
func (p *Peer) Err() error {
	if p.ended.yes.Load() {
		return p.ended.err
	}
	return nil
}

func (p *Peer) fail(err error) {
	p.ended.once.Do(func() {
		p.ended.err = err
		p.ended.yes.Store(true) // before done is closed: Err says why, once Done is
		close(p.ended.done)
	})
}

// BeginAhead begins a batch that was sent ahead; it returns false if the server has withdrawn it.
//
// Ordering: begun is swapped, a full barrier, before withdrawn is loaded; the server
// swaps withdrawn and loads begun in the same way. So one of the two sees the other.
func (p *Peer) BeginAhead(batch uint64) bool {
	p.begun.Swap(batch)
	return p.withdrawn.Load() != batch
}

// Now returns CLOCK_MONOTONIC in ns, the clock of both sides' timestamps.
func Now() int64 { return epochNanos + int64(time.Since(epoch)) }

var epoch, epochNanos = func() (time.Time, int64) {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Now(), ts.Nano()
}()

// yield gives the core to another runnable thread. It cannot block, so the runtime need not be
// told.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
