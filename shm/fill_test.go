package shm_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/shm"
)

// ledger is an account with a limit.
type ledger struct{ used, limit atomic.Int64 }

func (l *ledger) charge(n int64) bool {
	for {
		used := l.used.Load()
		if used+n > l.limit.Load() {
			return false
		}
		if l.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (l *ledger) refund(n int64) { l.used.Add(-n) }

func chargedPool(t *testing.T, size, limit int64) (*shm.Pool, *ledger) {
	l := &ledger{}
	l.limit.Store(limit)
	p := smallPool(t, size, shm.PoolConfig{Default: shm.PageSize, Growth: shm.PageSize, Charge: l.charge, Refund: l.refund})
	t.Cleanup(func() {
		if used, reserved := l.used.Load(), p.Stats().Reserved; used != reserved {
			t.Errorf("%d bytes are charged, want the %d that are real", used, reserved)
		}
	})
	return p, l
}

func open(t *testing.T, p *shm.Pool, n int) *shm.Block {
	t.Helper()
	b, err := p.Open(n, 0)
	if err != nil {
		t.Fatalf("Open(%d): %v", n, err)
	}
	return b
}

func grow(t *testing.T, b *shm.Block, n int) {
	t.Helper()
	if err := b.Grow(n); err != nil {
		t.Fatalf("Grow(%d): %v", n, err)
	}
}

// TestAnnouncedBlockIsChargedByContent checks that an announced block is charged only for its
// content.
func TestAnnouncedBlockIsChargedByContent(t *testing.T) {
	p, l := chargedPool(t, 64<<20, 8<<20)
	var blocks []*shm.Block
	for range 15 {
		blocks = append(blocks, open(t, p, 1<<20))
	}
	if used := l.used.Load(); used > shm.PageSize {
		t.Fatalf("15 MiB are announced and %d bytes charged, want a page at most", used)
	}
	grow(t, blocks[3], 10)
	grow(t, blocks[3], 300<<10)
	grow(t, blocks[3], 200<<10) // already that large
	data := blocks[3].Bytes()[:300<<10]
	for i := range data {
		data[i] = byte(i)
	}
	grow(t, blocks[3], 1<<20)
	for i := range data {
		if data[i] != byte(i) {
			t.Fatalf("byte %d has changed while the block grew", i)
		}
	}
	if used := l.used.Load(); used < 1<<20 || used > 1<<20+2*shm.PageSize {
		t.Errorf("1 MiB is filled and %d bytes are charged", used)
	}
	for _, b := range blocks {
		b.Release()
	}
	if s := p.Stats(); s.Blocks != 0 || s.Kept != 0 {
		t.Errorf("at the end: %+v, want no blocks", s)
	}
	p.Trim()
	if used := l.used.Load(); used != 0 {
		t.Errorf("%d bytes are charged after Trim, want none", used)
	}
}

// TestOpenLeavesWarmMemoryToOthers checks that an announced block in the span of a freed large one
// does not keep the span's memory from other blocks.
func TestOpenLeavesWarmMemoryToOthers(t *testing.T) {
	const size = 8 << 20
	p, _ := chargedPool(t, 64<<20, size+1<<20)
	shm.Alloc(t, p, size).Release()
	warm := open(t, p, size)
	if s := p.Stats(); s.Reserved < size || s.Kept != 0 {
		t.Fatalf("announced in a warm place: %+v, want %d bytes real and none kept", s, size)
	}
	grow(t, warm, 64<<10)
	warm.Bytes()[100] = 1
	other := shm.Alloc(t, p, size) // uses the memory that warm does not need yet
	if warm.Bytes()[100] != 1 {
		t.Error("what had been filled was taken")
	}
	if err := warm.Grow(size); !errors.Is(err, shm.ErrExhausted) {
		t.Errorf("both fit: got %v, want ErrExhausted", err)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	other.Release()
	grow(t, warm, size)
	if warm.Bytes()[100] != 1 {
		t.Error("what had been filled was taken")
	}
	warm.Release()
}

// TestAnnouncementsLeaveAddressSpace checks that announced but unfilled blocks get at most a
// quarter of the address space. A block with an eighth of its bytes proven is always available.
func TestAnnouncementsLeaveAddressSpace(t *testing.T) {
	p, _ := chargedPool(t, 64<<20, 8<<20)
	first, second := open(t, p, 8<<20), open(t, p, 8<<20)
	if _, err := p.Open(1<<20, 1<<17-1); !errors.Is(err, shm.ErrUnproven) {
		t.Fatalf("a third announcement: got %v, want ErrUnproven", err)
	}
	proven, err := p.Open(1<<20, 1<<17)
	if err != nil {
		t.Fatalf("with an eighth of it: %v", err)
	}
	shm.Alloc(t, p, 1<<20).Release()
	grow(t, first, 1<<20)
	third := open(t, p, 8<<20) // the first is now filled to an eighth
	for _, b := range []*shm.Block{first, second, third, proven} {
		b.Release()
	}
	if _, err := p.Open(-1, 0); err == nil {
		t.Error("a block of -1 bytes was opened")
	}
}

// TestFullPoolTrimsFirst checks that the pool gives back free memory before it fails
// because the account refuses a charge.
func TestFullPoolTrimsFirst(t *testing.T) {
	p, l := chargedPool(t, 64<<20, 4<<20)
	for _, n := range []int{1 << 20, 2 << 20, 3 << 20, 4 << 20} {
		shm.Alloc(t, p, n).Release()
	}
	held := shm.Alloc(t, p, 3<<20)
	if _, err := p.Alloc(2 << 20); !errors.Is(err, shm.ErrExhausted) {
		t.Errorf("got %v, want ErrExhausted", err)
	}
	l.limit.Store(8 << 20)
	shm.Alloc(t, p, 2<<20).Release()
	held.Release()
}

// TestOpenInTheLastOfTheAddressSpace checks that a block whose size class does not fit in the
// remaining address space still has all its bytes.
func TestOpenInTheLastOfTheAddressSpace(t *testing.T) {
	p, _ := chargedPool(t, 67*shm.PageSize, 67*shm.PageSize)
	first := shm.Alloc(t, p, 40*shm.PageSize)
	b, err := p.Open(25*shm.PageSize, 25*shm.PageSize) // size class: 28 pages
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	if s := p.Stats(); s.InUse != 25*shm.PageSize {
		t.Errorf("the block has %d bytes, want %d", s.InUse, 25*shm.PageSize)
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	b.Release()
}

// TestFilledBlocksKeepTheirBytesUnderLoad fills, trims and releases blocks concurrently, with less
// memory than requested. Blocks keep their content.
func TestFilledBlocksKeepTheirBytesUnderLoad(t *testing.T) {
	p, _ := chargedPool(t, 64<<20, 3<<20)
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 7))
			mark := byte(g + 1)
			for range 200 {
				n := 1 + random.IntN(1<<20)
				if g == 0 && random.IntN(8) == 0 {
					p.Trim()
				}
				b, err := p.Open(n, 0)
				if err != nil {
					continue
				}
				at := 0
				for at < n {
					to := min(n, max(2*at, 64<<10))
					if b.Grow(to) != nil {
						break
					}
					data := b.Bytes()
					data[at], data[to-1] = mark, mark
					if data[0] != mark {
						t.Errorf("the first byte is %d, want %d", data[0], mark)
					}
					at = to
				}
				if at > 0 && b.Bytes()[at-1] != mark {
					t.Errorf("byte %d is %d, want %d", at-1, b.Bytes()[at-1], mark)
				}
				b.Release()
			}
		})
	}
	wait.Wait()
}
