package peer_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/nereid-serving/nereid/shm"
)

// TestBlocksComeBackAndAreReused lends random-sized blocks to the supervisor's arena and returns
// them in random order. Contents never mix, and memory stays bounded.
func TestBlocksComeBackAndAreReused(t *testing.T) {
	var charged atomic.Int64
	r := peer.NewFixture(t, ipc.Config{
		MaxArena: 32 << 20, FreeArena: 1 << 20,
		Charge: func(n int64) bool { charged.Add(n); return true }, Refund: func(n int64) { charged.Add(-n) },
	}, nil, peer.Into(peer.NewBox()))
	arena := r.Peer.OpenArena(peer.Sizes{Default: 1 << 20, Growth: 1 << 20, Max: 32 << 20})
	random := rand.New(rand.NewPCG(1, 2))
	type lent struct {
		extent *shm.Extent
		bytes  []byte
		want   []byte
	}
	var out []lent
	settle := func(i int) {
		peer.SameBytes(t, "lent block", out[i].bytes, out[i].want)
		out[i].extent.Release()
		out[i] = out[len(out)-1]
		out = out[:len(out)-1]
	}
	for i := range 2000 {
		n := int(random.Int64N(1 << (8 + random.IntN(11))))
		block, err := arena.Take(int64(n))
		if err != nil {
			t.Fatal(err)
		}
		want := testkit.Pattern(n, i)
		copy(block.Bytes(), want)
		for range 1 + i%2 {
			ticket, err := arena.Lend(block)
			if err != nil {
				t.Fatal(err)
			}
			extent, bytes, err := r.Channel.Arena().Lend(shm.Ticket(ticket), block.Offset(), uint64(n))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, lent{extent, bytes, want})
		}
		if at, ok := block.Locate(block.Bytes()[n/2:]); n > 1 && (!ok || at != block.Offset()+uint64(n/2)) {
			t.Errorf("Locate: got %d, %v", at, ok)
		}
		block.Release()
		for len(out) > 20 || len(out) > 0 && random.IntN(3) == 0 {
			settle(random.IntN(len(out)))
		}
	}
	for len(out) > 0 {
		settle(0)
	}
	testkit.Eventually(t, peer.Patience, func() bool { return !arena.Lent() })
	backed, used := arena.Usage()
	if used != 0 || backed > 32<<20 {
		t.Errorf("got %d bytes in use of %d, want none", used, backed)
	}
	if up := r.Channel.UpBytes(); up < backed {
		t.Errorf("the file has %d bytes, %d count as real", up, backed)
	}
}

// TestArenaSaysWhyThereIsNoMemory exhausts each limit and checks the error.
func TestArenaSaysWhyThereIsNoMemory(t *testing.T) {
	t.Run("maximum", func(t *testing.T) {
		r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(peer.NewBox()))
		arena := r.Peer.OpenArena(peer.Sizes{Default: 64 << 10, Growth: 64 << 10, Max: 1 << 20})
		first, err := arena.Take(900 << 10)
		if err != nil {
			t.Fatal(err)
		}
		wantExhausted(t, arena, 200<<10, "a tensor needs 204800 bytes in one piece, others of this process use 1048576, and all together may use 1048576: the limit is shm-max-byte-size")
		first.Release()
		second, err := arena.Take(1 << 20) // evicts the first place
		if err != nil {
			t.Fatal(err)
		}
		second.Release()
	})
	t.Run("account", func(t *testing.T) {
		r := peer.NewFixture(t, ipc.Config{MaxArena: 32 << 20, FreeArena: 64 << 10, Charge: func(int64) bool { return false }, Refund: func(int64) {}}, nil, peer.Into(peer.NewBox()))
		arena := r.Peer.OpenArena(peer.Sizes{Default: 64 << 10, Growth: 64 << 10, Max: 32 << 20})
		block, err := arena.Take(32 << 10)
		if err != nil {
			t.Fatal(err)
		}
		wantExhausted(t, arena, 1<<20, "a tensor needs 1048576 bytes, others of this process use 32768, and the model's share")
		block.Release()
	})
	t.Run("file", func(t *testing.T) {
		r := peer.NewFixture(t, ipc.Config{UpSize: 64 << 20}, nil, peer.Into(peer.NewBox()))
		arena := r.Peer.OpenArena(peer.Sizes{Default: 64 << 10, Growth: 64 << 10})
		wantExhausted(t, arena, 1<<40, "a tensor needs 1099511627776 bytes in one piece")
		// All places have one size; a longer block is cut from free neighbours.
		var blocks []*peer.Block
		for {
			block, err := arena.Take(4 << 20)
			if err != nil {
				break
			}
			blocks = append(blocks, block)
		}
		if len(blocks) < 10 {
			t.Fatalf("got %d blocks of 4 MiB in 64 MiB", len(blocks))
		}
		wantExhausted(t, arena, 6<<20, "a tensor needs 6291456 bytes in one piece")
		blocks[3].Release()
		blocks[4].Release()
		joined, err := arena.Take(6 << 20)
		if err != nil {
			t.Fatal(err)
		}
		copy(joined.Bytes(), testkit.Pattern(6<<20, 1))
		rest, err := arena.Take(2 << 20)
		if err != nil {
			t.Fatal(err)
		}
		peer.SameBytes(t, "joined block", joined.Bytes(), testkit.Pattern(6<<20, 1))
		for _, block := range append(append(blocks[:3:3], blocks[5:]...), joined, rest) {
			block.Release()
		}
	})
	t.Run("descriptors", func(t *testing.T) {
		r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(peer.NewBox()))
		arena := r.Peer.OpenArena(peer.Sizes{Default: 64 << 10, Growth: 64 << 10})
		block, err := arena.Take(5000)
		if err != nil {
			t.Fatal(err)
		}
		var ticket uint64
		for range shm.ReturnRingSlots {
			if ticket, err = arena.Lend(block); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := arena.Lend(block); err == nil || !strings.Contains(err.Error(), "4096 tensors of this process are still being sent") {
			t.Errorf("one more: got error %v", err)
		}
		arena.Withdraw(ticket)
		if _, err := arena.Lend(block); err != nil {
			t.Error(err)
		}
	})
}

func wantExhausted(t *testing.T, arena *peer.Arena, n int64, reason string) {
	t.Helper()
	var exhausted *peer.Exhausted
	if _, err := arena.Take(n); !errors.As(err, &exhausted) || !strings.Contains(err.Error(), reason) ||
		!strings.HasPrefix(err.Error(), "Failed to increase the shared memory pool size to ") {
		t.Errorf("Take(%d): got error %v, want %q", n, err, reason)
	}
}

// TestIdlePeerGivesMemoryBack checks that a peer that waits for a frame frees its memory above the
// default, and that the server refunds it.
func TestIdlePeerGivesMemoryBack(t *testing.T) {
	var charged atomic.Int64
	box := peer.NewBox()
	r := peer.NewFixture(t, ipc.Config{
		MaxArena: 32 << 20, FreeArena: 1 << 20,
		Charge: func(n int64) bool { charged.Add(n); return true }, Refund: func(n int64) { charged.Add(-n) },
	}, nil, peer.Into(box))
	arena := r.Peer.OpenArena(peer.Sizes{Default: 1 << 20, Growth: 1 << 20, Max: 32 << 20})
	block, err := arena.Take(16 << 20)
	if err != nil {
		t.Fatal(err)
	}
	block.Release()
	if charged.Load() == 0 {
		t.Error("nothing was charged for 16 MiB")
	}
	received := make(chan error, 1)
	go func() {
		_, err := r.Peer.Receive(box, nil, 0)
		received <- err
	}()
	testkit.Eventually(t, peer.Patience, func() bool { backed, _ := arena.Usage(); return backed <= 1<<20 && charged.Load() == 0 })
	if err := r.Channel.Send(ipc.Cancel, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := peer.Within(t, "frame", received); err != nil {
		t.Error(err)
	}
	again, err := arena.Take(16 << 20) // reserves the freed place again
	if err != nil {
		t.Fatal(err)
	}
	again.Bytes()[0] = 1
	again.Release()
}

// TestRefusedBlockReturnsEarlierMemory checks that the server refunds the memory of earlier blocks
// that the peer has freed for a block that is refused nevertheless.
func TestRefusedBlockReturnsEarlierMemory(t *testing.T) {
	var charged atomic.Int64
	box := peer.NewBox()
	r := peer.NewFixture(t, ipc.Config{
		MaxArena: 32 << 20, FreeArena: 1 << 20, Refund: func(n int64) { charged.Add(-n) },
		Charge: func(n int64) bool {
			if charged.Load()+n > 20<<20 {
				return false
			}
			charged.Add(n)
			return true
		},
	}, nil, peer.Into(box))
	arena := r.Peer.OpenArena(peer.Sizes{Default: 1 << 20, Growth: 1 << 20, Max: 32 << 20})
	block, err := arena.Take(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	block.Release()
	wantExhausted(t, arena, 22<<20, "the model's share")
	received := make(chan error, 1)
	go func() {
		_, err := r.Peer.Receive(box, nil, 0)
		received <- err
	}()
	testkit.Eventually(t, peer.Patience, func() bool { return charged.Load() == 0 })
	if err := r.Channel.Send(ipc.Cancel, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := peer.Within(t, "frame", received); err != nil {
		t.Error(err)
	}
}

// TestTicketThatWasNotOutEndsTheConnection checks that a ticket returned twice is a ProtocolError.
func TestTicketThatWasNotOutEndsTheConnection(t *testing.T) {
	r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(peer.NewBox()))
	arena := r.Peer.OpenArena(peer.Sizes{Default: 64 << 10, Growth: 64 << 10})
	block, err := arena.Take(5000)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := arena.Lend(block)
	if err != nil {
		t.Fatal(err)
	}
	block.Release()
	for range 2 {
		extent, _, err := r.Channel.Arena().Lend(shm.Ticket(ticket), block.Offset(), 5000)
		if err != nil {
			t.Fatal(err)
		}
		extent.Release()
	}
	var broken *ipc.ProtocolError
	if _, err := arena.Take(1); !errors.As(err, &broken) {
		t.Errorf("got error %v, want a ProtocolError", err)
	}
}

// TestLoanShowsTheFileAgainAfterAWrite checks that a write into a loan is private: the next loan of
// the block shows the server's bytes again. A page stays written while a neighbouring loan uses it.
func TestLoanShowsTheFileAgainAfterAWrite(t *testing.T) {
	up := make(chan ipc.Frame, 16)
	r := peer.NewFixture(t, ipc.Config{}, func(_ *ipc.Channel, f ipc.Frame) error { up <- f; return nil }, peer.Into(peer.NewBox()))
	const n = 3*shm.PageSize + 100
	if err := r.Requests.Reserve(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.Requests.Bytes(shm.PageSize, n)
	copy(memory, testkit.Pattern(n, 1))
	borrow := func(ticket, offset, n uint64) *peer.Loan {
		t.Helper()
		loan, err := r.Peer.Borrow(ticket, offset, n)
		if err != nil {
			t.Fatal(err)
		}
		return loan
	}
	loan := borrow(1, shm.PageSize, n)
	peer.SameBytes(t, "loan", loan.Bytes(), memory)
	if ticket, offset, ok := loan.Ticket(loan.Bytes()[10:20], r.Peer.Faults()); !ok || ticket != 1 || offset != shm.PageSize+10 {
		t.Errorf("Ticket: got %d, %d, %v", ticket, offset, ok)
	}
	if _, _, ok := loan.Ticket(make([]byte, 10), r.Peer.Faults()); ok {
		t.Error("other memory counts as the loan's")
	}
	clear(loan.Bytes())
	peer.SameBytes(t, "the server's bytes", memory, testkit.Pattern(n, 1))
	if _, _, ok := loan.Ticket(loan.Bytes(), r.Peer.Faults()); ok {
		t.Error("written bytes are passed on as those of the server")
	}
	loan.Retain()
	loan.Release()
	if len(up) != 0 {
		t.Error("the ticket went back with a reference left")
	}
	loan.Release()
	if f := peer.Within(t, "ticket", up); f.Kind != ipc.Released || ipc.Ticket(f.Body, 0) != 1 {
		t.Errorf("got %s %x", f.Kind, f.Body)
	}
	loan = borrow(2, shm.PageSize, n)
	peer.SameBytes(t, "next loan", loan.Bytes(), memory)

	// Two neighbours share a page. The first is written and ends; the second still shows the
	// written page.
	left, right := borrow(3, shm.PageSize, shm.PageSize+50), borrow(4, 2*shm.PageSize+50, 100)
	loan.Release()
	clear(left.Bytes())
	right.Bytes()[0] = 0xee
	left.Release()
	if right.Bytes()[0] != 0xee {
		t.Error("the end of a loan took the page of its neighbour")
	}
	right.Release()
	loan = borrow(5, shm.PageSize, n)
	peer.SameBytes(t, "loan after both", loan.Bytes(), memory)
	loan.Release()
	if _, err := r.Peer.Borrow(6, 1<<40, 5); err == nil {
		t.Error("a loan outside the file was taken")
	}
}

// TestACountOfFaultsServesSettledLoansAlone checks that a fault count clears only settled loans.
// Code that still holds a reference may write into the loan after the count.
func TestACountOfFaultsServesSettledLoansAlone(t *testing.T) {
	r := peer.NewFixture(t, ipc.Config{}, nil, peer.Into(peer.NewBox()))
	const n = 2 * shm.PageSize
	if err := r.Requests.Reserve(0, 1<<20); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.Requests.Bytes(0, n)
	copy(memory, testkit.Pattern(n, 1))
	for ticket, test := range []struct {
		name  string
		write func(loan *peer.Loan) (now peer.Faults) // also counts
		ends  func(loan *peer.Loan, now peer.Faults)
	}{
		{"written before the count", func(loan *peer.Loan) peer.Faults {
			clear(loan.Bytes())
			if !loan.Settle(1) {
				t.Error("the loan has another reference")
			}
			return r.Peer.Faults()
		}, (*peer.Loan).End},
		{"written after the count by an author", func(loan *peer.Loan) peer.Faults {
			loan.Retain() // an author's reference
			if loan.Settle(1) {
				t.Error("the loan counts as settled while an author has it")
			}
			now := r.Peer.Faults()
			clear(loan.Bytes())
			loan.Release()
			return now
		}, (*peer.Loan).End},
		{"a response ends last", func(loan *peer.Loan) peer.Faults {
			loan.Retain() // the response's reference
			clear(loan.Bytes())
			if !loan.Settle(2) {
				t.Error("the loan has a third reference")
			}
			return r.Peer.Faults()
		}, func(loan *peer.Loan, now peer.Faults) {
			loan.End(now)
			if _, _, ok := loan.Ticket(loan.Bytes(), now); ok {
				t.Error("written bytes are passed on as those of the server")
			}
			loan.Release()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			loan, err := r.Peer.Borrow(uint64(ticket), 0, n)
			if err != nil {
				t.Fatal(err)
			}
			peer.SameBytes(t, "loan", loan.Bytes(), memory)
			test.ends(loan, test.write(loan))
			next, err := r.Peer.Borrow(100+uint64(ticket), 0, n)
			if err != nil {
				t.Fatal(err)
			}
			peer.SameBytes(t, "next loan", next.Bytes(), memory)
			next.Release()
		})
	}
}
