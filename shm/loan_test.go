package shm

import (
	"strings"
	"testing"
)

func TestLoansKeepBlocksUntilTicketsReturn(t *testing.T) {
	p := newPool(t, PoolConfig{})
	b := alloc(t, p, 10_000)
	var l Loans
	ticket, ok := l.Lend(b)
	if !ok {
		t.Fatal("Lend: refused")
	}
	begin := b.Offset()
	b.Release() // the loan keeps it

	for _, c := range []struct {
		name      string
		ticket    Ticket
		offset, n uint64
		want      string
	}{
		{"whole", ticket, begin, 10_000, ""},
		{"inside", ticket, begin + 9_999, 1, ""},
		{"before", ticket, begin - 1, 1, "outside the loan"},
		{"beyond", ticket, begin + 9_999, 2, "outside the loan"},
		{"wrapping", ticket, begin + 1, ^uint64(0), "outside the loan"},
		{"stale", ticket + 1<<32, begin, 1, "generation"},
		{"unknown slot", ticket + 7, begin, 1, "names slot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			block, bytes, err := l.Borrow(c.ticket, c.offset, c.n)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("Borrow: got error %v, want one with %q", err, c.want)
				}
				return
			}
			if err != nil || uint64(len(bytes)) != c.n {
				t.Fatalf("Borrow: got %d bytes and %v, want %d", len(bytes), err, c.n)
			}
			block.Release()
		})
	}

	if err := l.Return(ticket); err != nil {
		t.Fatal(err)
	}
	if err := l.Return(ticket); err == nil {
		t.Fatal("second Return: no error")
	}
	if s := p.Stats(); s.Blocks != 0 {
		t.Fatalf("blocks after Return: got %d, want 0", s.Blocks)
	}
}

// held counts references.
type held int

func (h *held) Retain()  { *h++ }
func (h *held) Release() { *h-- }

func TestLoansKeepMemoryOfOthers(t *testing.T) {
	var l Loans
	var h held
	one, _ := l.LendHeld(&h)
	two, ok := l.LendHeld(&h)
	if n, bytes := l.Count(); !ok || h != 2 || n != 2 || bytes != 0 {
		t.Errorf("%d references, %d loans of %d bytes, want 2, 2 and none", h, n, bytes)
	}
	if _, _, err := l.Borrow(one, 0, 0); err == nil {
		t.Error("memory of others can be borrowed")
	}
	if err := l.Return(one); err != nil || h != 1 {
		t.Errorf("%d references and error %v after a ticket has come back, want one", h, err)
	}
	if err := l.Return(one); err == nil {
		t.Error("a ticket has come back twice")
	}
	l.Close()
	if _, ok := l.LendHeld(&h); ok || h != 0 {
		t.Errorf("%d references after the end, and something is lent: %v", h, ok)
	}
	if err := l.Return(two); err == nil {
		t.Error("a ticket has come back after the end")
	}
}

// TestLoansTellWhatIsKept: a block of a batch is kept when the batch has been answered and the
// block is still lent; what belongs to no batch is kept from the beginning.
func TestLoansTellWhatIsKept(t *testing.T) {
	p := newPool(t, PoolConfig{})
	kept := int64(0)
	l := Loans{Kept: func(more int64) { kept += more }}
	lend := func(n int, g *Group) Ticket {
		b := alloc(t, p, n)
		defer b.Release()
		ticket, ok := l.LendFor(b, g)
		if !ok {
			t.Fatal("LendFor: refused")
		}
		return ticket
	}
	wants := func(when string, want int64) {
		t.Helper()
		if kept != want {
			t.Errorf("%s: %d bytes are kept, want %d", when, kept, want)
		}
	}
	var batch, next Group
	early, late := lend(PageSize, &batch), lend(2*PageSize, &batch)
	lend(4*PageSize, &next)
	wants("while both batches are executed", 0)
	if err := l.Return(early); err != nil {
		t.Fatal(err)
	}
	l.Answered(&batch)
	l.Answered(&batch)
	wants("after the first was answered", 2*PageSize)
	lend(PageSize, nil)
	wants("with a block of no batch", 3*PageSize)
	if err := l.Return(late); err != nil {
		t.Fatal(err)
	}
	wants("after a ticket has come back", PageSize)
	l.Close()
	wants("after the end", 0)
	l.Answered(&next)
	wants("of a batch that is answered then", 0)
}

func TestLoansEndWithTheLife(t *testing.T) {
	p := newPool(t, PoolConfig{})
	var l Loans
	for range 5 {
		b := alloc(t, p, 5000)
		l.Lend(b)
		b.Release()
	}
	if n, bytes := l.Count(); n != 5 || bytes != 25_000 {
		t.Fatalf("Count: got %d loans of %d bytes, want 5 of 25000", n, bytes)
	}
	l.Close()
	if s := p.Stats(); s.Blocks != 0 {
		t.Fatalf("blocks after Close: got %d, want 0", s.Blocks)
	}
	b := alloc(t, p, 1)
	defer b.Release()
	if _, ok := l.Lend(b); ok {
		t.Fatal("Lend after Close: accepted")
	}
}

func TestArenaBlocksAreCheckedAndReturned(t *testing.T) {
	t.Run("sealed", func(t *testing.T) { testArena(t, Memfd{}) })
	t.Run("named", func(t *testing.T) { testArena(t, Named{Prefix: "nereid_test_"}) })
}

func testArena(t *testing.T, backing Backing) {
	t.Helper()
	region, err := NewRegion(backing, 1<<22, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	var returned []Ticket
	a := NewArena(region, 1<<21, func(t Ticket) { returned = append(returned, t) })
	for _, c := range []struct {
		offset, n uint64
		ok        bool
	}{
		{ArenaOffset, 1 << 20, true}, {ArenaOffset - 1, 1, false}, {0, 8, false}, {ArenaOffset, 1<<21 + 1, false},
		{1 << 22, 1, false}, {ArenaOffset + 8, ^uint64(0) - 8, false}, {ArenaOffset, 0, true},
		{ArenaOffset, 1<<20 + 1, false}, // nothing of it is reserved
	} {
		e, _, err := a.Lend(7, c.offset, c.n)
		if (err == nil) != c.ok {
			t.Errorf("Lend(%d, %d): got error %v, want ok %t", c.offset, c.n, err, c.ok)
		}
		if e != nil {
			e.Release()
		}
	}
	if len(returned) != 2 || returned[0] != 7 {
		t.Fatalf("returned tickets: got %v, want two times 7", returned)
	}

	last, b, err := a.Lend(9, ArenaOffset, 8)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	_ = b[7] // still mapped
	last.Release()
	if len(returned) != 2 {
		t.Fatal("a ticket was returned after Close")
	}
	if region.mem != nil {
		t.Fatal("the region is still mapped after the last extent")
	}
}

// TestArenaBeyondItsShare wants bytes behind those that a stub may use to have
// been written: its blocks can lie there, but nothing is made real by reading it.
func TestArenaBeyondItsShare(t *testing.T) {
	for name, backing := range map[string]Backing{"sealed": Memfd{}, "named": Named{Prefix: "nereid_test_"}} {
		t.Run(name, func(t *testing.T) {
			const share = 1 << 16
			region, err := NewRegion(backing, 1<<22, ReadOnly)
			if err != nil {
				t.Fatal(err)
			}
			returned := 0
			a := NewArena(region, share, func(Ticket) { returned++ })
			defer a.Close()
			if _, err := region.File().WriteAt(make([]byte, 2*PageSize), 1<<21); err != nil {
				t.Fatal(err)
			}
			before, err := region.Reserved()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				offset, n uint64
				ok        bool
			}{
				{1 << 21, 2 * PageSize, true}, {1<<21 + 100, PageSize, true}, {1 << 21, 2*PageSize + 1, false},
				{1<<21 - 1, 2, false}, {1 << 20, 1, false}, {1<<22 - 1, 1, false}, {1<<22 - 1, 0, true},
				{ArenaOffset, share, true}, {ArenaOffset, share + 1, false}, {ArenaOffset + 1, share, false},
			} {
				e, _, err := a.Lend(7, c.offset, c.n)
				if (err == nil) != c.ok {
					t.Errorf("Lend(%d, %d): got error %v, want ok %t", c.offset, c.n, err, c.ok)
				}
				if e != nil {
					e.Release()
				}
			}
			if after, err := region.Reserved(); err != nil || after != before {
				t.Errorf("reserved: got %d (error %v), want %d as before", after, err, before)
			}
			if returned != 4 {
				t.Errorf("returned tickets: got %d, want 4", returned)
			}
		})
	}
}

func TestArenaLimitsWhatIsOutstanding(t *testing.T) {
	region, err := NewRegion(Memfd{}, 1<<20, ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	a := NewArena(region, 1<<20, func(Ticket) {})
	var held []*Extent
	for {
		e, _, err := a.Lend(1, ArenaOffset, 1)
		if err != nil {
			break
		}
		held = append(held, e)
	}
	if len(held) != ReturnRingSlots {
		t.Fatalf("outstanding: got %d, want %d", len(held), ReturnRingSlots)
	}
	a.Close()
	for _, e := range held {
		e.Release()
	}
}
