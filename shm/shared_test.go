package shm

import "testing"

func CheckArena(t *testing.T, backing Backing) {
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
		{ArenaOffset, 1<<20 + 1, false}, // not reserved
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

func Alloc(t testing.TB, p *Pool, n int) *Block {
	t.Helper()
	b, err := p.Alloc(n)
	if err != nil {
		t.Fatalf("Alloc(%d): %v", n, err)
	}
	return b
}
