package cudaipc_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// maker is a stub that lends device memory, as seen by its Lent.
type maker struct {
	t     *testing.T
	lent  *cudaipc.Lent
	arena *shm.Arena

	mu       sync.Mutex
	returned []shm.Ticket
}

func newMaker(t *testing.T, copier cudaipc.Copier) *maker {
	t.Helper()
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{t: t}
	m.arena = shm.NewArena(region, 1<<20, func(ticket shm.Ticket) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.returned = append(m.returned, ticket)
	})
	m.lent = cudaipc.NewLent(m.arena, copier)
	t.Cleanup(func() {
		m.lent.Close()
		m.arena.Close()
	})
	return m
}

func lendBody(device uint32, size uint64) []byte {
	body := make([]byte, ipc.AllocationSize)
	ipc.PutAllocation(body, foreign.NewDevice(device, [16]byte{1, 2}, size, foreign.Handle{3, 4, 63: 5}))
	return body
}

func (m *maker) say(kind ipc.Kind, number uint64, body []byte) error {
	return m.lent.Receive(ipc.Frame{Kind: kind, ID: number, Body: body})
}

func (m *maker) lend(number, size uint64) {
	m.t.Helper()
	if err := m.say(ipc.Lend, number, lendBody(0, size)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) borrow(number uint32, ticket shm.Ticket, offset, n uint64) *cudaipc.Memory {
	m.t.Helper()
	memory, err := m.lent.Borrow(number, ticket, offset, n)
	if err != nil {
		m.t.Fatal(err)
	}
	return memory
}

// reader is a stub that receives announcements of allocations.
type reader struct {
	known *cudaipc.Announced

	mu     sync.Mutex
	frames []ipc.Frame
	broken error // error of the ring
}

func newReader(own *cudaipc.Lent) *reader {
	r := &reader{}
	r.known = cudaipc.NewAnnounced(own, func(kind ipc.Kind, id uint64, body []byte) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.broken == nil {
			r.frames = append(r.frames, ipc.Frame{Kind: kind, ID: id, Body: slices.Clone(body)})
		}
		return r.broken
	}, zerolog.Nop())
	return r
}

// heard returns the frames sent to the stub since the last call.
func (r *reader) heard() (told []ipc.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told, r.frames = r.frames, nil
	return told
}

// TestFromLendToFreed follows an allocation from its maker to a reader and back.
func TestFromLendToFreed(t *testing.T) {
	m := newMaker(t, nil)
	m.lend(1, 4096)
	memory := m.borrow(1, 1<<31|7, 1024, 2048)
	if memory.Size() != 2048 || memory.Offset() != 1024 || !memory.Sole() || m.arena.Outstanding() != 1 {
		t.Fatalf("got %d bytes at %d, sole %v, %d tickets out", memory.Size(), memory.Offset(), memory.Sole(), m.arena.Outstanding())
	}
	r := newReader(newMaker(t, nil).lent)
	for range 2 {
		region, number, err := r.known.Name(memory)
		if err != nil || region != ipc.InDevice || number != 1 {
			t.Fatalf("got region %d, number %d, error %v", region, number, err)
		}
	}
	told := r.heard()
	if len(told) != 1 || told[0].Kind != ipc.Allocation || told[0].ID != 1 || !bytes.Equal(told[0].Body, lendBody(0, 4096)) {
		t.Fatalf("the reader was told %v, want one ALLOCATION, as it was lent", told)
	}
	memory.Retain()
	if memory.Sole() {
		t.Error("one of two references is the only one")
	}
	memory.Release()
	memory.Release()
	if !slices.Equal(m.returned, []shm.Ticket{1<<31 | 7}) || m.arena.Outstanding() != 0 {
		t.Errorf("tickets %v came back, %d are out", m.returned, m.arena.Outstanding())
	}
	if told := r.heard(); len(told) != 0 {
		t.Errorf("the reader was told %v, but the allocation is still lent", told)
	}
	if err := m.say(ipc.Unlend, 1, nil); err != nil {
		t.Fatal(err)
	}
	if told := r.heard(); len(told) != 1 || told[0].Kind != ipc.Freed || told[0].ID != 1 || r.known.Count() != 0 {
		t.Errorf("the reader was told %v, want FREED, and knows %d", told, r.known.Count())
	}
	// A number is never reused, on either side.
	if err := m.say(ipc.Lend, 1, lendBody(0, 4096)); err == nil {
		t.Error("a number was lent twice")
	}
	m.lend(2, 64)
	again := m.borrow(2, 1, 0, 64)
	defer again.Release()
	if _, number, err := r.known.Name(again); err != nil || number != 2 {
		t.Errorf("got number %d, error %v, want 2", number, err)
	}
}

// TestAStubIsToldNothingOfItsOwn checks that a stub gets no announcement of its own memory. No
// process can open its own memory.
func TestAStubIsToldNothingOfItsOwn(t *testing.T) {
	m := newMaker(t, nil)
	r := newReader(m.lent)
	m.lend(3, 4096)
	memory := m.borrow(3, 1, 0, 4096)
	defer memory.Release()
	if region, number, err := r.known.Name(memory); err != nil || region != ipc.InOwnDevice || number != 3 || len(r.heard()) != 0 {
		t.Errorf("got region %d, number %d, error %v", region, number, err)
	}
}

// TestTheDeathOfAMaker checks that readers can name memory of a dead maker until its last reference
// is released. Then they get FREED.
func TestTheDeathOfAMaker(t *testing.T) {
	m := newMaker(t, nil)
	m.lend(1, 4096)
	memory := m.borrow(1, 1, 0, 4096)
	r, late := newReader(nil), newReader(nil)
	if _, _, err := r.known.Name(memory); err != nil {
		t.Fatal(err)
	}
	m.lent.Close()
	m.arena.Close()
	r.heard()
	if _, _, err := late.known.Name(memory); err != nil {
		t.Errorf("a late reader: %v", err)
	}
	if told := r.heard(); len(told) != 0 {
		t.Errorf("the reader was told %v while it holds a tensor", told)
	}
	memory.Release()
	for _, each := range []*reader{r, late} {
		if told := each.heard(); len(told) == 0 || told[len(told)-1].Kind != ipc.Freed {
			t.Errorf("the reader was told %v, want FREED last", told)
		}
	}
	if len(m.returned) != 0 {
		t.Errorf("tickets %v went to a dead stub", m.returned)
	}
	if err := m.say(ipc.Lend, 2, lendBody(0, 1)); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("got error %v of a life that has ended, want ErrClosed", err)
	}
}

// TestTheDeathOfAReader checks that a dead reader gets no more frames.
func TestTheDeathOfAReader(t *testing.T) {
	m := newMaker(t, nil)
	m.lend(1, 4096)
	memory := m.borrow(1, 1, 0, 4096)
	r := newReader(nil)
	if _, _, err := r.known.Name(memory); err != nil {
		t.Fatal(err)
	}
	r.known.Close()
	r.heard()
	memory.Release()
	if err := m.say(ipc.Unlend, 1, nil); err != nil {
		t.Fatal(err)
	}
	if told := r.heard(); len(told) != 0 {
		t.Errorf("the dead was told %v", told)
	}
}

// TestAFullRing checks that an allocation whose announcement failed is announced with the next
// tensor.
func TestAFullRing(t *testing.T) {
	m := newMaker(t, nil)
	m.lend(1, 4096)
	memory := m.borrow(1, 1, 0, 4096)
	defer memory.Release()
	r := newReader(nil)
	r.broken = errors.New("full")
	if _, _, err := r.known.Name(memory); !errors.Is(err, r.broken) || r.known.Count() != 0 {
		t.Fatalf("got error %v, %d known", err, r.known.Count())
	}
	r.broken = nil
	if _, number, err := r.known.Name(memory); err != nil || number != 1 {
		t.Errorf("got number %d, error %v", number, err)
	}
}

func TestInvalidDeviceTensorsAreRejected(t *testing.T) {
	long := append(lendBody(0, 1), 0)
	for name, say := range map[string]func(m *maker) error{
		"number 0":          func(m *maker) error { return m.say(ipc.Lend, 0, lendBody(0, 1)) },
		"number too high":   func(m *maker) error { return m.say(ipc.Lend, 1<<32, lendBody(0, 1)) },
		"number again":      func(m *maker) error { m.lend(5, 1); return m.say(ipc.Lend, 5, lendBody(0, 1)) },
		"number that falls": func(m *maker) error { m.lend(5, 1); return m.say(ipc.Lend, 4, lendBody(0, 1)) },
		"no bytes":          func(m *maker) error { return m.say(ipc.Lend, 1, lendBody(0, 0)) },
		"too many bytes":    func(m *maker) error { return m.say(ipc.Lend, 1, lendBody(0, 1<<63)) },
		"device":            func(m *maker) error { return m.say(ipc.Lend, 1, lendBody(1<<20, 1)) },
		"short":             func(m *maker) error { return m.say(ipc.Lend, 1, long[:95]) },
		"long":              func(m *maker) error { return m.say(ipc.Lend, 1, long) },
		"unlend unknown":    func(m *maker) error { return m.say(ipc.Unlend, 1, nil) },
		"unlend with body":  func(m *maker) error { m.lend(1, 1); return m.say(ipc.Unlend, 1, []byte{0}) },
		"unlend while out": func(m *maker) error {
			m.lend(1, 1)
			memory := m.borrow(1, 1, 0, 1)
			defer memory.Release()
			return m.say(ipc.Unlend, 1, nil)
		},
		"too many": func(m *maker) error {
			for i := range uint64(cudaipc.MostLent) {
				m.lend(i+1, 1)
			}
			return m.say(ipc.Lend, cudaipc.MostLent+1, lendBody(0, 1))
		},
		"borrow unknown": func(m *maker) error { _, err := m.lent.Borrow(1, 1, 0, 1); return err },
		"borrow beyond":  func(m *maker) error { m.lend(1, 8); _, err := m.lent.Borrow(1, 1, 8, 1); return err },
		"borrow around":  func(m *maker) error { m.lend(1, 8); _, err := m.lent.Borrow(1, 1, 1<<63, 1<<63); return err },
		"borrow too often": func(m *maker) error {
			m.lend(1, 8)
			for i := range shm.Ticket(shm.ReturnRingSlots) {
				defer m.borrow(1, i, 0, 1).Release()
			}
			_, err := m.lent.Borrow(1, 1, 0, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaker(t, nil)
			var broke *ipc.ProtocolError
			if err := say(m); !errors.As(err, &broke) {
				t.Errorf("got error %v, want a ProtocolError", err)
			}
		})
	}
}

// copier records the range to copy.
type copier struct{ offset, n uint64 }

func (c *copier) Copy(_ context.Context, _ *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error) {
	c.offset, c.n = offset, n
	return make([]byte, n), nil, nil
}

// TestATensorOnADeviceIsForeign checks that a tensor on a device has no bytes until a copier has
// copied them.
func TestATensorOnADeviceIsForeign(t *testing.T) {
	c := &copier{}
	m := newMaker(t, c)
	m.lend(1, 4096)
	tensor := infer.Tensor{Memory: m.borrow(1, 9, 256, 1024)}
	if cudaipc.Of(&tensor) == nil || tensor.Foreign() == nil || tensor.Size() != 1024 {
		t.Fatalf("the tensor is not foreign, or has %d bytes", tensor.Size())
	}
	if err := tensor.Localize(t.Context()); err != nil || len(tensor.Data) != 1024 || c.offset != 256 || cudaipc.Of(&tensor) != nil {
		t.Errorf("error %v, %d bytes copied at %d", err, len(tensor.Data), c.offset)
	}
	if m.arena.Outstanding() != 0 {
		t.Error("the maker did not get its ticket back")
	}
	blind := newMaker(t, nil)
	blind.lend(1, 1)
	tensor = infer.Tensor{Memory: blind.borrow(1, 9, 0, 1)}
	defer tensor.Release()
	if err := tensor.Localize(t.Context()); err == nil || tensor.Memory == nil {
		t.Errorf("got error %v where there is no copier", err)
	}
}

// TestStormOfReaders ends allocations that several readers announce concurrently.
func TestStormOfReaders(t *testing.T) {
	m := newMaker(t, nil)
	readers := make([]*reader, 4)
	for i := range readers {
		readers[i] = newReader(nil)
	}
	for number := uint64(1); number < 200; number++ {
		m.lend(number, 64)
		memory := m.borrow(uint32(number), shm.Ticket(number), 0, 64)
		var wait sync.WaitGroup
		for _, r := range readers {
			memory.Retain()
			wait.Go(func() {
				defer memory.Release()
				if _, _, err := r.known.Name(memory); err != nil {
					t.Error(err)
				}
			})
		}
		memory.Release()
		wait.Wait()
		if err := m.say(ipc.Unlend, number, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range readers {
		if told := r.heard(); len(told) != 2*199 || r.known.Count() != 0 {
			t.Errorf("the reader was told %d times and knows %d, want %d and none", len(told), r.known.Count(), 2*199)
		}
	}
}

// clientMemory is a client's memory, on a device or not.
type clientMemory struct {
	infer.Foreign
	allocation *foreign.Device
}

func (c clientMemory) OnDevice() (*foreign.Device, uint64) { return c.allocation, 7 }

// TestMemoryOfClientsIsAnnounced checks that a client's device memory is announced once, and freed
// with its registration.
func TestMemoryOfClientsIsAnnounced(t *testing.T) {
	allocation := foreign.NewDevice(0, [16]byte{1, 2}, 4096, foreign.Handle{3, 4, 63: 5})
	for _, other := range []*infer.Tensor{{}, {Data: []byte{1}, Memory: clientMemory{allocation: allocation}}, {Memory: clientMemory{}}} {
		if c, _, _ := cudaipc.OfClient(other); c != nil {
			t.Errorf("%+v is taken for memory of a client on a device", other)
		}
	}
	c, found, offset := cudaipc.OfClient(&infer.Tensor{Memory: clientMemory{allocation: allocation}})
	if c == nil || found != allocation || offset != 7 {
		t.Fatalf("got %v, allocation %p at %d, want %p at 7", c, found, offset, allocation)
	}
	r := newReader(nil)
	for range 2 {
		if number, err := r.known.Announce(allocation); err != nil || number != 1 {
			t.Fatalf("got number %d and error %v, want 1", number, err)
		}
	}
	if told := r.heard(); len(told) != 1 || told[0].Kind != ipc.Allocation || !bytes.Equal(told[0].Body, lendBody(0, 4096)) {
		t.Errorf("the stub was told %v, want one ALLOCATION", told)
	}
	allocation.Release()
	if told := r.heard(); len(told) != 1 || told[0].Kind != ipc.Freed || told[0].ID != 1 || r.known.Count() != 0 {
		t.Errorf("the stub was told %v, want FREED, and knows %d", told, r.known.Count())
	}
}
