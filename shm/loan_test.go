package shm_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/shm"
)

func TestLoansKeepBlocksUntilTicketsReturn(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	b := shm.Alloc(t, p, 10_000)
	var l shm.Loans
	ticket, ok := l.Lend(b)
	if !ok {
		t.Fatal("Lend: refused")
	}
	begin := b.Offset()
	b.Release() // the loan keeps it

	for _, c := range []struct {
		name      string
		ticket    shm.Ticket
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
	var l shm.Loans
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

// TestLoansReportKeptBlocks checks that a block lent for a batch counts as kept once the batch has
// been answered and the block is still lent. A block without a batch counts from the start.
func TestLoansReportKeptBlocks(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	kept := int64(0)
	l := shm.Loans{Kept: func(more int64) { kept += more }}
	lend := func(n int, g *shm.Group) shm.Ticket {
		b := shm.Alloc(t, p, n)
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
	var batch, next shm.Group
	early, late := lend(shm.PageSize, &batch), lend(2*shm.PageSize, &batch)
	lend(4*shm.PageSize, &next)
	wants("while both batches are executed", 0)
	if err := l.Return(early); err != nil {
		t.Fatal(err)
	}
	l.Answered(&batch)
	l.Answered(&batch)
	wants("after the first was answered", 2*shm.PageSize)
	lend(shm.PageSize, nil)
	wants("with a block of no batch", 3*shm.PageSize)
	if err := l.Return(late); err != nil {
		t.Fatal(err)
	}
	wants("after a ticket has come back", shm.PageSize)
	l.Close()
	wants("after the end", 0)
	l.Answered(&next)
	wants("of a batch that is answered then", 0)
}

func TestLoansEndWithTheLife(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	var l shm.Loans
	for range 5 {
		b := shm.Alloc(t, p, 5000)
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
	b := shm.Alloc(t, p, 1)
	defer b.Release()
	if _, ok := l.Lend(b); ok {
		t.Fatal("Lend after Close: accepted")
	}
}

func TestArenaBlocksAreCheckedAndReturned(t *testing.T) {
	t.Run("sealed", func(t *testing.T) { shm.CheckArena(t, shm.Memfd{}) })
	t.Run("named", func(t *testing.T) { shm.CheckArena(t, shm.Named{Prefix: "nereid_test_"}) })
}

// TestArenaBeyondItsShare checks that bytes beyond a stub's share can be lent only if they were
// written. Reading them never allocates memory.
func TestArenaBeyondItsShare(t *testing.T) {
	for name, backing := range map[string]shm.Backing{"sealed": shm.Memfd{}, "named": shm.Named{Prefix: "nereid_test_"}} {
		t.Run(name, func(t *testing.T) {
			const share = 1 << 16
			region, err := shm.NewRegion(backing, 1<<22, shm.ReadOnly)
			if err != nil {
				t.Fatal(err)
			}
			returned := 0
			a := shm.NewArena(region, share, func(shm.Ticket) { returned++ })
			defer a.Close()
			if _, err := region.File().WriteAt(make([]byte, 2*shm.PageSize), 1<<21); err != nil {
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
				{1 << 21, 2 * shm.PageSize, true}, {1<<21 + 100, shm.PageSize, true}, {1 << 21, 2*shm.PageSize + 1, false},
				{1<<21 - 1, 2, false}, {1 << 20, 1, false}, {1<<22 - 1, 1, false}, {1<<22 - 1, 0, true},
				{shm.ArenaOffset, share, true}, {shm.ArenaOffset, share + 1, false}, {shm.ArenaOffset + 1, share, false},
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

func TestArenaLimitsOutstandingBlocks(t *testing.T) {
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	a := shm.NewArena(region, 1<<20, func(shm.Ticket) {})
	var held []*shm.Extent
	for {
		e, _, err := a.Lend(1, shm.ArenaOffset, 1)
		if err != nil {
			break
		}
		held = append(held, e)
	}
	if len(held) != shm.ReturnRingSlots {
		t.Fatalf("outstanding: got %d, want %d", len(held), shm.ReturnRingSlots)
	}
	a.Close()
	for _, e := range held {
		e.Release()
	}
}
