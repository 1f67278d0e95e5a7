package shm_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

func newPool(t testing.TB, config shm.PoolConfig) *shm.Pool {
	t.Helper()
	return smallPool(t, 1<<32, config)
}

// smallPool returns a pool with little address space.
func smallPool(t testing.TB, size int64, config shm.PoolConfig) *shm.Pool {
	t.Helper()
	region, err := shm.NewRegion(shm.Memfd{}, size, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	p, err := shm.NewPool(region, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Verify(); err != nil {
			t.Errorf("Verify: %v", err)
		}
		p.Close()
	})
	return p
}

func TestPoolCutsItsAddressSpaceAnew(t *testing.T) {
	p := smallPool(t, 64<<20, shm.PoolConfig{Growth: 4 << 20})
	for _, n := range []int{40 << 20, 30 << 20, 63 << 20, 1, 50 << 20} {
		shm.Alloc(t, p, n).Release()
		if err := p.Verify(); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	// Free neighbours between held blocks.
	var blocks []*shm.Block
	for range 8 {
		blocks = append(blocks, shm.Alloc(t, p, 8<<20))
	}
	if _, err := p.Alloc(1); !errors.Is(err, shm.ErrExhausted) {
		t.Fatalf("got %v from a full pool, want ErrExhausted", err)
	}
	for _, i := range []int{2, 3, 4} {
		blocks[i].Release()
	}
	between := shm.Alloc(t, p, 20<<20)
	if between.Offset() != blocks[2].Offset() {
		t.Errorf("the block lies at %d, want %d", between.Offset(), blocks[2].Offset())
	}
	rest := shm.Alloc(t, p, 4<<20)
	for _, b := range []*shm.Block{between, rest, blocks[0], blocks[1], blocks[5], blocks[6], blocks[7]} {
		b.Release()
	}
	shm.Alloc(t, p, 64<<20).Release()
}

// TestPoolOfMixedSizesNeverRunsOut uses an eighth of the sizes and steps of a 32 MiB pool with its
// defaults, because the kernel would need ten seconds to clear that pool's pages.
func TestPoolOfMixedSizesNeverRunsOut(t *testing.T) {
	p := smallPool(t, 4<<20, shm.PoolConfig{Default: 1 << 17, Growth: 1 << 17})
	random := rand.New(rand.NewPCG(1, 2))
	var blocks []*shm.Block
	held := 0
	for range 5000 {
		if n := random.IntN(6 << 17); held+n < 12<<17 {
			b, err := p.Alloc(n)
			if err == nil {
				// Writing touches the allocated memory.
				bytes := b.Bytes()
				for at := 0; at < len(bytes); at += shm.PageSize {
					bytes[at] = 1
				}
				blocks, held = append(blocks, b), held+n
			} else if len(blocks) == 0 {
				t.Fatalf("an empty pool refuses %d bytes: %v", n, err)
			}
		}
		if i := random.IntN(len(blocks) + 1); i < len(blocks) {
			held -= blocks[i].Len()
			blocks[i].Release()
			blocks = append(blocks[:i], blocks[i+1:]...)
		}
	}
	for _, b := range blocks {
		b.Release()
	}
}

func TestExtendedBlockIsNotTrimmed(t *testing.T) {
	p := smallPool(t, 1<<30, shm.PoolConfig{Default: shm.PageSize, Growth: shm.PageSize, Max: 30 * shm.PageSize})
	first := shm.Alloc(t, p, 17*shm.PageSize)
	defer shm.Alloc(t, p, 8*shm.PageSize).Release()
	defer shm.Alloc(t, p, 4*shm.PageSize).Release()
	first.Release()
	if b, err := p.Alloc(20 * shm.PageSize); err == nil {
		t.Errorf("got a block of 20 pages, with 12 of 30 in use")
		b.Release()
	}
	if err := p.Verify(); err != nil {
		t.Error(err)
	}
	shm.Alloc(t, p, 18*shm.PageSize).Release()
}

func TestPoolReusesTheLastFreedBlock(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	a, b := shm.Alloc(t, p, 100_000), shm.Alloc(t, p, 100_000)
	first, second := a.Offset(), b.Offset()
	a.Release()
	b.Release()
	c := shm.Alloc(t, p, 99_000)
	defer c.Release()
	if c.Offset() != second || first == second {
		t.Fatalf("Alloc after releases at %d and %d: got %d, want %d", first, second, c.Offset(), second)
	}
	if len(c.Bytes()) != 99_000 || cap(c.Bytes()) != 99_000 {
		t.Fatalf("Bytes: got length %d and capacity %d, want 99000", len(c.Bytes()), cap(c.Bytes()))
	}
}

func TestOnFreeRunsAtTheLastRelease(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	b := shm.Alloc(t, p, 5000)
	freed := 0
	b.OnFree(func() { freed++ })
	b.Retain()
	b.Release()
	if freed != 0 {
		t.Error("the block is free while it has a reference")
	}
	b.Release()
	if freed != 1 {
		t.Errorf("f was called %d times, want once", freed)
	}
}

func TestPoolGrowsInStepsAndShrinks(t *testing.T) {
	p := newPool(t, shm.PoolConfig{Default: 1 << 20, Growth: 8 << 20, IdleTrim: time.Millisecond})
	big := shm.Alloc(t, p, 20<<20)
	if got := p.Stats().Reserved; got != 1<<20+24<<20 && got != 1<<20+16<<20+8<<20 {
		t.Fatalf("reserved after 20 MiB: got %d, want the default and a multiple of the growth", got)
	}
	copy(big.Bytes(), "warm")
	big.Release()
	if !testkit.Within(time.Minute, func() bool { return p.Stats().Reserved <= 1<<20 }) {
		t.Fatalf("reserved after the release: still %d", p.Stats().Reserved)
	}
	again := shm.Alloc(t, p, 20<<20)
	defer again.Release()
	if again.Bytes()[0] != 0 {
		t.Fatal("the first byte of memory that was given back is still there")
	}
}

func TestPoolRefusesBeyondItsLimitAndGoesOn(t *testing.T) {
	p := newPool(t, shm.PoolConfig{Default: 1 << 20, Growth: 4 << 20, Max: 8 << 20})
	if _, err := p.Alloc(16 << 20); !errors.Is(err, shm.ErrExhausted) {
		t.Fatalf("Alloc beyond the limit: got %v, want ErrExhausted", err)
	}
	a := shm.Alloc(t, p, 6<<20)
	if _, err := p.Alloc(6 << 20); !errors.Is(err, shm.ErrExhausted) {
		t.Fatalf("second Alloc of 6 MiB of 8: got %v, want ErrExhausted", err)
	}
	small := shm.Alloc(t, p, 4096)
	small.Release()
	a.Release()
	// A block of another class fits because free memory is given back first.
	b := shm.Alloc(t, p, 5<<20)
	b.Release()
}

// TestNamedPoolOnAFullFilesystem fills a tmpfs. Growth must return an error, never raise a signal,
// and the old size must stay usable.
func TestNamedPoolOnAFullFilesystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small tmpfs cannot be mounted here: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	region, err := shm.NewRegion(shm.Named{Prefix: "test_", Dir: dir}, 1<<30, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	p, err := shm.NewPool(region, shm.PoolConfig{Default: 1 << 20, Growth: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Alloc(16 << 20); !errors.Is(err, shm.ErrExhausted) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("Alloc of 16 MiB on 4 MiB: got %v, want ErrExhausted by ENOSPC", err)
	}
	b := shm.Alloc(t, p, 2<<20)
	for i := range b.Bytes() {
		b.Bytes()[i] = 1
	}
	b.Release()
}

func TestNamedRegionHasAPrivateNameUntilUnlinked(t *testing.T) {
	dir := t.TempDir()
	var files shm.NamedFiles
	region, err := shm.NewRegion(shm.Named{Prefix: "pre_", Dir: dir, Files: &files}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Release()
	names, _ := os.ReadDir(dir)
	if len(names) != 1 {
		t.Fatalf("names: got %v, want one", names)
	}
	info, err := names[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode: got %v (%v), want 0600", info.Mode(), err)
	}
	var st, other unix.Stat_t
	if err := errors.Join(unix.Fstat(int(region.File().Fd()), &st), unix.Stat(dir, &other)); err != nil {
		t.Fatal(err)
	}
	if !files.Has(st.Dev, st.Ino) || files.Has(other.Dev, other.Ino) {
		t.Error("not the region's file alone is known by its number")
	}
	if err := region.Unlink(); err != nil {
		t.Fatal(err)
	}
	if files.Has(st.Dev, st.Ino) {
		t.Error("the region's file is known without its name")
	}
	if names, _ = os.ReadDir(dir); len(names) != 0 {
		t.Fatalf("names after Unlink: got %v, want none", names)
	}
	if err := region.Unlink(); err != nil {
		t.Fatalf("second Unlink: %v", err)
	}
}

func TestMemfdIsSealed(t *testing.T) {
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Release()
	if err := unix.Ftruncate(int(region.File().Fd()), 0); err != unix.EPERM {
		t.Fatalf("truncate: got %v, want EPERM", err)
	}
	reader, err := region.OpenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := unix.Pwrite(int(reader.Fd()), []byte("x"), 0); err != unix.EBADF {
		t.Fatalf("write through the read-only descriptor: got %v, want EBADF", err)
	}
}

func TestGuardTurnsATruncatedFileIntoAnError(t *testing.T) {
	region, err := shm.NewRegion(shm.Named{Prefix: "t_", Dir: t.TempDir()}, 1<<20, shm.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Release()
	if err := region.File().Truncate(0); err != nil {
		t.Fatal(err)
	}
	b, err := region.Bytes(4096, 8)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	if err := shm.Guard(func() { sum += int(b[3]) }); !errors.Is(err, shm.ErrFault) {
		t.Fatalf("Guard: got %v, want ErrFault", err)
	}
	if err := shm.Guard(func() { sum++ }); err != nil || sum != 1 {
		t.Fatalf("Guard of something harmless: got %v and %d", err, sum)
	}
}

func TestRegionRefusesRangesOutside(t *testing.T) {
	region, err := shm.NewRegion(shm.Memfd{}, 1<<20, shm.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Release()
	for _, c := range []struct {
		offset, n uint64
		ok        bool
	}{
		{0, 1 << 20, true}, {1 << 20, 0, true}, {0, 1<<20 + 1, false}, {1<<20 + 1, 0, false},
		{8, ^uint64(0) - 4, false}, {^uint64(0), 1, false}, {1 << 19, 1 << 19, true}, {1 << 19, 1<<19 + 1, false},
	} {
		if _, err := region.Bytes(c.offset, c.n); (err == nil) != c.ok {
			t.Errorf("Bytes(%d, %d): got error %v, want ok %t", c.offset, c.n, err, c.ok)
		}
	}
}

func TestPoolKeepsBlocksApartUnderLoad(t *testing.T) {
	p := newPool(t, shm.PoolConfig{Max: 64 << 20, IdleTrim: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			var held []*shm.Block
			for i := range 3000 {
				if len(held) > 8 || (len(held) > 0 && r.IntN(2) == 0) {
					k := r.IntN(len(held))
					b := held[k]
					if b.Bytes()[0] != byte(b.Offset()>>12) {
						t.Errorf("block at %d was overwritten", b.Offset())
					}
					b.Release()
					held = append(held[:k], held[k+1:]...)
					continue
				}
				b, err := p.Alloc(1 + r.IntN(1<<uint(10+r.IntN(12))))
				if errors.Is(err, shm.ErrExhausted) {
					continue
				}
				if err != nil {
					t.Errorf("Alloc %d: %v", i, err)
					return
				}
				b.Bytes()[0] = byte(b.Offset() >> 12)
				held = append(held, b)
			}
			for _, b := range held {
				b.Release()
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Blocks != 0 || s.InUse != 0 {
		t.Fatalf("Stats after all releases: got %+v, want nothing in use", s)
	}
}

func TestBlockReleasedTwicePanics(t *testing.T) {
	p := newPool(t, shm.PoolConfig{})
	b := shm.Alloc(t, p, 10)
	b.Release()
	defer func() {
		if recover() == nil {
			t.Fatal("second Release: no panic")
		}
	}()
	b.Release()
}

func BenchmarkAllocRelease(b *testing.B) {
	p := newPool(b, shm.PoolConfig{})
	for b.Loop() {
		shm.Alloc(b, p, 1<<16).Release()
	}
}
