package budget

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestSharesSumUp checks that the kinds' own shares sum to a quarter of the limit, and that no
// kind's own share exceeds its maximum.
func TestSharesSumUp(t *testing.T) {
	sum := int64(0)
	for k, s := range shares {
		if Kind(k) == Cache {
			continue
		}
		sum += s.own
		if s.name == "" || s.most == 0 || s.own > s.most || s.most > 64 {
			t.Errorf("%s: own %d, most %d, want a name and 0 <= own <= most <= 64", Kind(k), s.own, s.most)
		}
	}
	if sum != 16 {
		t.Errorf("kinds have %d of 64 parts alone, want 16: three quarters are common", sum)
	}
}

func TestTakeRefusesBeyondTheLimits(t *testing.T) {
	a := New(Config{Limit: 6400, Cache: 10})
	most := a.Most(Blocks)
	if most != 4800 {
		t.Fatalf("blocks may have %d, want three quarters", most)
	}
	refused := func(k Kind, n int64, code infer.Code, text string) {
		t.Helper()
		err := a.Take(k, n)
		if e := infer.AsError(err); e == nil || e.Code != code || !strings.Contains(e.Message, text) {
			t.Errorf("take %d of %s: got %v, want %v with %q", n, k, err, code, text)
		}
	}
	refused(Blocks, most+1, infer.InvalidArg, "but the server has 4800 for blocks of all requests together")
	refused(Blocks, math.MaxInt64, infer.InvalidArg, "")
	if err := a.Take(Blocks, most); err != nil {
		t.Fatal(err)
	}
	refused(Blocks, 1, infer.Unavailable, "4800 of the server's 6400 bytes for requests are in use, 4800 of them for blocks")
	refused(JSON, 201, infer.Unavailable, "for json")
	// Each other kind still has its own share.
	for k := range kinds {
		if k == Blocks || k == Released {
			continue
		}
		own := a.own[k]
		if err := a.Take(k, own); err != nil || own <= 0 {
			t.Errorf("%s: its own %d bytes: %v", k, own, err)
		}
		if a.Try(k, 1) {
			t.Errorf("%s: one byte more than its own is to be had though all that is common is taken", k)
		}
	}
	if a.Total() != 6400 {
		t.Errorf("%d bytes are taken without the cache, want all 6400", a.Total())
	}
	for k := range kinds {
		a.Give(k, a.Used(k))
	}
	if a.Total() != 0 || a.common.used.Load() != 0 {
		t.Errorf("%d bytes are taken after the end, %d of them common, want none", a.Total(), a.common.used.Load())
	}
	defer func() {
		if recover() == nil {
			t.Error("one byte too many was given back and nothing panicked")
		}
	}()
	a.Give(Blocks, 1)
}

// TestMustAndMoveChargeBeyondTheLimit checks that memory already in use is charged even beyond the
// limit. Other charges fail until it is refunded.
func TestMustAndMoveChargeBeyondTheLimit(t *testing.T) {
	a := New(Config{Limit: 6400, Cache: 500})
	a.Must(Arenas, 7000)
	if a.Try(Blocks, 1) {
		t.Error("a block is to be had beyond the limit")
	}
	if !a.Try(JSON, 200) {
		t.Error("JSON's own is not to be had")
	}
	a.Give(Arenas, 7000)
	if !a.Try(Blocks, 400) {
		t.Fatal("nothing is to be had after all was given back")
	}
	a.Move(Blocks, Cache, 400)
	if a.Used(Blocks) != 0 || a.Used(Cache) != 400 || a.common.used.Load() != 0 {
		t.Errorf("moved: blocks %d, cache %d, common %d, want 0, 400, 0", a.Used(Blocks), a.Used(Cache), a.common.used.Load())
	}
}

// TestOnShortAsksBeforeRefusing checks that the OnShort callback runs before a charge is refused,
// and only then.
func TestOnShortAsksBeforeRefusing(t *testing.T) {
	a := New(Config{Limit: 6400})
	asked := 0
	a.OnShort(func() {
		asked++
		a.Give(Blocks, 1000)
	})
	if err := a.Take(Blocks, 4800); err != nil || asked != 0 {
		t.Fatalf("got %v, asked %d times", err, asked)
	}
	if err := a.Take(JSON, 1000); err != nil || asked != 1 {
		t.Errorf("got %v, asked %d times, want once", err, asked)
	}
	a.Give(Blocks, 2800)
	if err := a.Take(Transport, 1600); err != nil {
		t.Fatal(err)
	}
	asked = 0
	if err := a.Take(Transport, 1); err == nil || asked != 0 {
		t.Errorf("a kind at its maximum: got %v, asked %d times, want a refusal at once", err, asked)
	}
}

// TestStormLosesNoCharge takes and gives concurrently. No charge is lost, and neither a kind nor
// the common part ever exceeds its maximum.
func TestStormLosesNoCharge(t *testing.T) {
	a := New(Config{Limit: 1 << 16, Cache: 1 << 10})
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			c := Charge{Account: a}
			for range 3000 {
				k := Kind(random.IntN(Kinds))
				switch random.IntN(4) {
				case 0:
					c.Settle()
				case 1:
					c.Give(k, random.Int64N(c.Taken(k)+1))
				default:
					_ = c.Take(k, random.Int64N(8<<10))
				}
				if used := a.Used(k); used > a.most[k] {
					t.Errorf("%s: %d bytes are taken, want at most %d", k, used, a.most[k])
				}
				if n := a.common.used.Load(); n > a.commons {
					t.Errorf("%d common bytes are taken, want at most %d", n, a.commons)
				}
			}
			c.Settle()
			c.Settle()
		})
	}
	wait.Wait()
	if a.Total() != 0 || a.Used(Cache) != 0 || a.common.used.Load() != 0 {
		t.Errorf("%d bytes are taken at the end, %d of them common, want none", a.Total(), a.common.used.Load())
	}
}

// TestFreedHeapIsChargedUntilItHasShrunk checks that large freed memory stays charged until the
// heap has shrunk, which needs no further call.
func TestFreedHeapIsChargedUntilItHasShrunk(t *testing.T) {
	a := New(Config{Limit: 64 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Keep(ctx, Watch{}) }()
	testkit.Eventually(t, 20*time.Second, a.keeper.on.Load)

	const size = 32 << 20
	heap := func() int64 { return readHeap()().size }
	before := heap()
	if err := a.Take(JSON, size); err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		garbage[i] = 1
	}
	more := make([]byte, 4*size) // not charged
	for i := 0; i < len(more); i += 4096 {
		more[i] = 1
	}
	a.keeper.wake()
	testkit.Eventually(t, 20*time.Second, func() bool { return a.Used(Released) > size })
	if a.Try(Blocks, 48<<20) {
		t.Error("three quarters of the limit are to be had while the heap is that large")
	}
	runtime.KeepAlive(garbage)
	runtime.KeepAlive(more)
	a.Give(JSON, size)
	testkit.Eventually(t, 20*time.Second, func() bool { return a.Used(Released) == 0 && heap() < before+size })
	a.Must(Released, 5)
	cancel()
	<-done
	if a.Total() != 0 {
		t.Errorf("%d bytes are taken after the end, want none", a.Total())
	}
	a.Must(JSON, size)
	a.Give(JSON, size)
	if a.Total() != 0 {
		t.Errorf("%d bytes are taken when nobody keeps the account, want none", a.Total())
	}
}

func TestDefaultLimitIsHalfOfTheMachine(t *testing.T) {
	a := New(Config{})
	if a.Limit() != Limit()/2 {
		t.Errorf("got %d, want half of %d", a.Limit(), Limit())
	}
	for k := range kinds {
		if strings.ContainsAny(k.String(), " -") || k.String() == "" {
			t.Errorf("kind %d is called %q, want a label", k, k)
		}
	}
}

func BenchmarkTakeGive(b *testing.B) {
	a := New(Config{Limit: 1 << 30})
	b.RunParallel(func(pb *testing.PB) {
		c := Charge{Account: a}
		for pb.Next() {
			_ = c.Take(Bodies, 4096)
			c.Settle()
		}
	})
}

func TestKindsFitWithinTheirShares(t *testing.T) {
	a := New(Config{Limit: 6400})
	if !a.Try(Blocks, 4000) || !a.Fits(Padding, 1600) || a.Fits(Padding, 1601) {
		t.Errorf("padding may have 1600 of 6400: fits %t %t", a.Fits(Padding, 1600), a.Fits(Padding, 1601))
	}
	a.Move(Blocks, Padding, 1000)
	if a.Fits(Padding, 601) || !a.Fits(Padding, 600) {
		t.Error("padding may have 600 more")
	}
	a.Move(Padding, Blocks, 1000)
	a.Give(Blocks, 4000)
	if a.Total() != 0 || a.common.used.Load() != 0 {
		t.Errorf("%d bytes are taken at the end, %d common", a.Total(), a.common.used.Load())
	}
}

// TestWithoutAnAccountNothingIsCharged takes and gives back memory with charges that have no
// account.
func TestWithoutAnAccountNothingIsCharged(t *testing.T) {
	c := &Charge{}
	if b, err := Make[byte](c, JSON, 100); err != nil || len(b) != 100 || c.Taken(JSON) != 0 {
		t.Errorf("got %d bytes, %v, and %d charged", len(b), err, c.Taken(JSON))
	}
	c.Give(JSON, 100)
	c.Settle()
	shared := (*Account)(nil).Share()
	if err := shared.Take(JSON, 100); err != nil {
		t.Error(err)
	}
	shared.Drop()
}
