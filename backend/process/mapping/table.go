package mapping

import (
	"os"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// most is the number of mappings of one stub. Each takes it one or two descriptors.
const most = 64

// Config sets up a Table.
type Config struct {
	// Socket is the near end of the pair for descriptors; the Table closes it. nil: nothing is
	// mapped.
	Socket *os.File
	// Send writes a frame to the stub's ring.
	Send func(kind ipc.Kind, id uint64, body []byte) error
	Log  zerolog.Logger
}

// Table tracks the regions that one life of a stub has mapped, and for which use. It is safe for
// concurrent use.
type Table struct {
	config Config

	mu       sync.Mutex
	closed   bool
	last     uint32            // latest number; none is used twice
	byUse    map[use]*entry    // bound: most
	byNumber map[uint32]*entry // bound: most
}

// use is the purpose of a mapping. A stub maps a region for inputs, copy-on-write, and once more
// for outputs, so that no model sees writes through its inputs.
type use struct {
	region   *shm.Shared
	writable bool // for outputs
}

// entry is a mapping for which the stub was asked. Guarded by Table.mu.
type entry struct {
	number  uint32
	of      use
	forget  func() // cancels the call of ended
	state   state
	leaving bool // UNMAP has been sent, or is about to be
}

// state is the stub's response about a region.
type state uint8

const (
	asked state = iota
	mapped
	refused
)

// New creates the Table of a life that has mapped nothing.
func New(config Config) *Table {
	return &Table{config: config, byUse: make(map[use]*entry), byNumber: make(map[uint32]*entry)}
}

// Number returns the number by which the stub knows a region that it has mapped: for outputs if
// writable, otherwise for inputs.
func (t *Table) Number(region *shm.Shared, writable bool) (number uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byUse[use{region, writable}]
	if e == nil || e.state != mapped || e.leaving {
		return 0, false
	}
	return e.number, true
}

// Want reports whether the stub has mapped the region, as in Number, and asks it to on the first
// call. It does not wait. The caller has a reference to the region.
func (t *Table) Want(region *shm.Shared, writable bool) bool {
	if t.config.Socket == nil {
		return false
	}
	of := use{region, writable}
	t.mu.Lock()
	if e := t.byUse[of]; e != nil || t.closed || len(t.byNumber) >= most {
		ready := e != nil && e.state == mapped && !e.leaving
		t.mu.Unlock()
		return ready
	}
	t.last++
	e := &entry{number: t.last, of: of}
	// Before anything is sent, so that one caller asks and the others copy.
	t.byUse[of], t.byNumber[e.number] = e, e
	err := t.hand(e)
	t.mu.Unlock()

	if err == nil {
		var body [ipc.MapSize]byte
		offset, size := region.Range()
		ipc.PutMap(body[:], uint64(offset), uint64(size), writable)
		err = t.config.Send(ipc.Map, uint64(e.number), body[:])
	}
	if err != nil {
		// The socket is full, no descriptor is left, or the stub has ended: the tensors are copied,
		// and a later request tries again. The stub ignores a descriptor without its MAP, by its
		// number.
		t.config.Log.Debug().Err(err).Msg("stub did not map a client's region")
		t.drop(e)
		return false
	}
	// The caller's reference prevents the region's end before this line: MAP comes before UNMAP.
	forget := region.OnEnd(func() { t.ended(e) })
	t.mu.Lock()
	defer t.mu.Unlock()
	e.forget = forget
	if t.closed && forget != nil {
		forget()
	}
	return false
}

// drop forgets an entry that was not sent to the stub.
func (t *Table) drop(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(e)
}

func (t *Table) dropLocked(e *entry) {
	delete(t.byUse, e.of)
	delete(t.byNumber, e.number)
}

// ended makes the stub unmap a region that no request uses any more.
func (t *Table) ended(e *entry) {
	t.mu.Lock()
	closed := t.closed
	e.leaving = true
	// The region is gone; its number is kept for later frames of the stub.
	delete(t.byUse, e.of)
	t.mu.Unlock()
	if closed {
		return
	}
	if err := t.config.Send(ipc.Unmap, uint64(e.number), nil); err != nil {
		t.config.Log.Debug().Err(err).Msg("stub was not notified to unmap a client's region")
	}
}

// Receive handles MAPPED. An error ends the life.
func (t *Table) Receive(f ipc.Frame) error {
	status, err := ipc.ParseMapped(f.Body)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byNumber[uint32(f.ID)]
	switch {
	case e == nil || uint64(e.number) != f.ID:
		return ipc.Broken("region", "MAPPED of region %d, which the stub was not asked for", f.ID)
	case status == ipc.MapEnded:
		if !e.leaving || e.state == asked {
			return ipc.Broken("region", "region %d is unmapped before UNMAP, or before MAP was answered", f.ID)
		}
		t.dropLocked(e)
	case e.state != asked:
		return ipc.Broken("region", "MAP of region %d is answered twice", f.ID)
	case status == ipc.MapDone:
		e.state = mapped
	default:
		e.state = refused // until the end of the region: another attempt would be pointless
	}
	return nil
}

// Distrust prevents further mappings of regions that are now shorter than when the stub mapped
// them, and reports whether it found any. The stub has ended. The check is made under the lock, so
// no region ends meanwhile.
func (t *Table) Distrust() (found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, e := range t.byUse {
		if e.state == mapped && of.region.Short() {
			of.region.Distrust()
			found = true
		}
	}
	return found
}

// Count returns the number of mappings that the stub knows.
func (t *Table) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byNumber)
}

// Close forgets all regions, because the life has ended. It may be called again.
func (t *Table) Close() {
	t.mu.Lock()
	t.closed = true
	var forget []func() // bound: most
	for _, e := range t.byNumber {
		if e.forget != nil {
			forget = append(forget, e.forget)
		}
	}
	clear(t.byUse)
	clear(t.byNumber)
	if t.config.Socket != nil {
		_ = t.config.Socket.Close()
	}
	t.mu.Unlock()
	for _, f := range forget { // they lock the region
		f()
	}
}
