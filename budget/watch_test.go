package budget

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const mib = 1 << 20

// machine is a system whose figures the test sets. Its clock advances between looks.
type machine struct {
	*watcher
	log         testkit.Buffer
	clock       time.Time
	state       heapState
	used, limit int64 // of the control group
	sweeps      int
	garbage     int64 // the part of state.size that a collection frees
	took        time.Duration
	limits      []int64 // set for the Go runtime
}

func newMachine(limit int64) *machine {
	m := &machine{clock: time.Unix(1000, 0), state: heapState{size: 10 * mib, live: 4 * mib, other: 3 * mib}}
	m.watcher = newWatcher(New(Config{Limit: limit}), Watch{LimitHeap: true, Log: zerolog.New(&m.log)}, system{
		heap:  func() heapState { return m.state },
		group: func() (int64, int64) { return m.used, m.limit },
		collect: func() {
			m.sweeps++
			m.state.size, m.garbage = m.state.size-m.garbage, 0
			m.clock = m.clock.Add(m.took)
		},
		setGo: func(n int64) { m.limits = append(m.limits, n) },
		now:   func() time.Time { return m.clock },
	})
	m.keeper.on.Store(true)
	return m
}

// after advances the clock and looks.
func (m *machine) after(d time.Duration) time.Duration {
	m.clock = m.clock.Add(d)
	return m.look()
}

// grow adds uncharged memory in use.
func (m *machine) grow(n int64) { m.state.size, m.state.live = m.state.size+n, m.state.live+n }

// lines returns the number of log lines with text.
func (m *machine) lines(text string) int { return strings.Count(m.log.String(), text) }

// holder enters a holder with bytes of replies. Ending it frees them in the account and on the
// heap.
func (m *machine) holder(t *testing.T, name string, bytes int64, ended *[]string) {
	t.Helper()
	h := &Holder{Name: func() string { return name }}
	c := Charge{Account: m.Account, Holder: h}
	if err := c.Take(Replies, bytes); err != nil {
		t.Fatal(err)
	}
	h.End = func() { *ended = append(*ended, name) }
	m.Enter(h)
}

// TestPressureIsTheServersOwnMemory checks that memory is low if the server uses more than the
// account allows. It is also low if the control group is nearly full and the server can free a
// substantial part.
func TestPressureIsTheServersOwnMemory(t *testing.T) {
	const gib = 1 << 30
	for _, test := range []struct {
		name                 string
		account              int64
		heap, blocks, limit  int64
		left                 int64 // in the group
		pressed, mayEnd, now bool
	}{
		{"at rest", gib / 2, 0, 0, gib, gib / 2, false, false, false},
		{"all that may be taken is taken", gib / 2, 0, gib / 2, 2 * gib, gib, false, false, false},
		{"the heap is garbage within the allowance", gib / 2, 60 * mib, gib / 2, 2 * gib, gib, false, false, false},
		{"more than all that may be taken", gib / 2, 100 * mib, gib / 2, 2 * gib, gib, true, true, false},
		{"much more", gib / 2, gib, 0, 4 * gib, gib, true, true, true},
		{"models have taken 97 % of the group", 8 * gib, 20 * mib, 0, 16 * gib, gib / 2, false, false, false},
		{"models have taken 99 % of the group", 8 * gib, 20 * mib, 0, 16 * gib, gib / 8, false, false, false},
		{"models have taken 99 % of the group and requests 1 GiB", 8 * gib, 0, gib, 16 * gib, gib / 8, true, false, false},
		{"requests have taken much of a full group", 8 * gib, 0, 4 * gib, 16 * gib, 200 * mib, true, true, false},
		{"requests have taken much of a group that is about to overflow", 8 * gib, 0, 4 * gib, 16 * gib, 100 * mib, true, true, true},
		{"a small group", gib / 2, 200 * mib, 0, gib, 20 * mib, true, true, true},
		{"no group", gib / 2, 200 * mib, 0, 0, 0, false, false, false},
	} {
		m := newMachine(test.account)
		m.grow(test.heap)
		m.Must(Blocks, test.blocks)
		m.limit, m.used = test.limit, test.limit-test.left
		m.after(time.Second)
		p := m.found
		if m.Pressed() != test.pressed || (p.high && p.ours) != test.mayEnd || (p.high && p.dire) != test.now {
			t.Errorf("%s: got pressed %t, ours %t, dire %t, want %t %t %t", test.name, m.Pressed(), p.ours, p.dire, test.pressed, test.mayEnd, test.now)
		}
		if m.Pressed() != (m.lines("memory is low, large") == 1) {
			t.Errorf("%s: the log is %s", test.name, m.log.String())
		}
	}
}

// TestGarbageIsNoPressure checks that an oversized heap is swept before anything is refused.
func TestGarbageIsNoPressure(t *testing.T) {
	m := newMachine(64 * mib)
	m.state.size, m.garbage = 500*mib, 480*mib
	if next := m.after(time.Second); m.Pressed() || m.sweeps != 1 || next != idleApart {
		t.Errorf("got pressed %t after %d sweeps, next look in %v", m.Pressed(), m.sweeps, next)
	}
	// The heap grows again right after a sweep: bodies are refused until it may be swept again.
	m.took = 100 * time.Millisecond
	m.state.size, m.garbage = 500*mib, 480*mib
	m.after(time.Second)
	m.state.size, m.garbage = 500*mib, 480*mib
	if m.after(lookApart); !m.Pressed() || m.sweeps != 2 {
		t.Errorf("got pressed %t after %d sweeps, want true and 2", m.Pressed(), m.sweeps)
	}
	if m.after(sweepShare * m.took); m.Pressed() || m.sweeps != 3 {
		t.Errorf("got pressed %t after %d sweeps, want false and 3", m.Pressed(), m.sweeps)
	}
}

// TestGarbageOfATightGroup checks that garbage is collected while the control group still has some
// memory left, which models' processes may need at once, and that owners of free memory give it
// back then.
func TestGarbageOfATightGroup(t *testing.T) {
	m := newMachine(512 * mib)
	asked := 0
	m.OnShort(func() { asked++ })
	m.Must(Blocks, 100*mib)
	waste := func() { m.state.size, m.garbage = m.state.size+60*mib, 60*mib }
	waste()
	m.limit, m.used = 1024*mib, 700*mib
	m.after(time.Second)
	if m.sweeps != 0 {
		t.Fatalf("swept %d times, although the group has enough left", m.sweeps)
	}
	m.used = 850 * mib
	if next := m.after(time.Second); m.sweeps != 1 || asked != 1 || m.Pressed() || next != lookApart {
		t.Errorf("got %d sweeps, %d calls of owners, pressed %t, next look in %v; want 1, 1, false, %v", m.sweeps, asked, m.Pressed(), next, lookApart)
	}
	waste()
	if m.after(lookApart); m.sweeps != 1 {
		t.Errorf("swept again %v after a sweep", lookApart)
	}
	if m.after(pressedApart); m.sweeps != 2 {
		t.Errorf("got %d sweeps, want 2", m.sweeps)
	}
	m.give(Blocks, 100*mib)
	waste()
	if m.after(time.Second); m.sweeps != 2 {
		t.Error("swept, although models have filled the group")
	}
}

// TestPressureEndsBelowTheLowMark checks that pressure ends at a lower level than it starts, and
// that a server at the threshold does not flood the log.
func TestPressureEndsBelowTheLowMark(t *testing.T) {
	m := newMachine(64 * mib)
	m.grow(117 * mib)
	asked := 0
	m.OnShort(func() { asked++ })
	if next := m.after(time.Second); !m.Pressed() || next != lookApart || asked != 1 {
		t.Fatalf("got pressed %t, next look in %v, owners of free memory asked %d times", m.Pressed(), next, asked)
	}
	m.grow(-5 * mib)
	if m.after(time.Second); !m.Pressed() {
		t.Error("a little less ends the pressure")
	}
	for range 100 {
		m.grow(-50 * mib)
		if m.after(lookApart); m.Pressed() {
			t.Fatal("much less does not end the pressure")
		}
		m.grow(50 * mib)
		m.after(lookApart)
		m.grow(5 * mib)
		if m.after(lookApart); !m.Pressed() {
			t.Fatal("memory is not short again")
		}
		m.grow(-5 * mib)
	}
	if short, enough := m.lines("memory is low, large"), m.lines("no longer low"); short < 3 || short > 5 || enough < 2 || enough > 4 {
		t.Errorf("in 30 s the log says %d times that memory is low and %d times that it is not", short, enough)
	}
}

// TestLargestHolderIsEnded checks that the largest holder is ended and the heap collected. Only if
// that is not enough, the next one is ended.
func TestLargestHolderIsEnded(t *testing.T) {
	m := newMachine(64 * mib)
	var ended []string
	for i, n := range []int64{2 * mib, 9 * mib, 4 * mib, 100} {
		m.holder(t, fmt.Sprintf("holder %d", i), n, &ended)
	}
	m.Enter(&Holder{}) // cannot be ended
	m.holder(t, "newest", 200, &ended)
	m.grow(130 * mib)
	m.after(time.Second)
	m.after(patience - 2*time.Second)
	if !m.Pressed() || len(ended) != 0 {
		t.Fatalf("got pressed %t, ended %q, want time for refusals to help", m.Pressed(), ended)
	}
	m.after(2 * time.Second)
	m.after(lookApart)
	if got := fmt.Sprint(ended); got != "[holder 1]" {
		t.Fatalf("ended %s, want the largest", got)
	}
	m.grow(200 * mib) // now it is urgent
	for range 20 {
		before, sweeps := len(ended), m.sweeps
		m.after(lookApart)
		if len(ended) > before && m.sweeps == sweeps {
			t.Fatalf("%q were ended without a sweep in between", ended)
		}
	}
	if got := fmt.Sprint(ended); got != "[holder 1 holder 2 holder 0]" || m.Ended() != 3 {
		t.Errorf("ended %s, counted %d, want all with more than 1 MiB, the largest first", got, m.Ended())
	}
	for _, want := range []string{`"holder":"holder 1"`, `"held":9437184`, `"bytes":146800640`, `"charged":15728940`, "closed the largest holder of memory because memory is low"} {
		if m.lines(want) == 0 {
			t.Errorf("the log lacks %s: %s", want, m.log.String())
		}
	}
	// The kernel is about to kill the process: tiny holders are ended as well, newest first.
	m.limit, m.used = 1<<30, 1<<30-10*mib
	for range 20 {
		m.after(lookApart)
	}
	if got := fmt.Sprint(ended[3:]); got != "[newest holder 3]" {
		t.Errorf("ended %s", got)
	}
}

// TestUnchargedHeapIsReported checks that uncharged memory in use is logged once per hour. Garbage
// that a collection frees is not reported.
func TestUnchargedHeapIsReported(t *testing.T) {
	m := newMachine(1 << 30)
	const text = "much larger than the charged memory"
	m.state.size, m.state.live = 310*mib, 304*mib
	m.collect = func() { m.sweeps++; m.state.live = 4 * mib }
	if m.after(time.Second); m.lines(text) != 0 || m.sweeps != 1 {
		t.Errorf("after %d sweeps the log is %s", m.sweeps, m.log.String())
	}
	m.collect = func() { m.sweeps++ }
	m.grow(300 * mib)
	m.Must(JSON, 110*mib)
	if m.after(sayApart); m.lines(text) != 0 {
		t.Errorf("most of it is charged: after %d sweeps the log is %s", m.sweeps, m.log.String())
	}
	sweeps := m.sweeps
	m.give(JSON, 10*mib)
	for range 100 {
		m.after(time.Second)
	}
	if m.lines(text) != 1 || m.lines(`"bytes":321912832,"charged":104857600`) != 1 || m.sweeps > sweeps+2 {
		t.Errorf("after %d more sweeps the log is %s", m.sweeps-sweeps, m.log.String())
	}
	if m.after(reportApart); m.lines(text) != 2 {
		t.Errorf("after an hour the log is %s", m.log.String())
	}
}

// TestIdleServerReturnsMemory checks that an idle server sweeps a grown heap until that gains
// nothing. A heap that has not grown, or that is in use, is left alone.
func TestIdleServerReturnsMemory(t *testing.T) {
	m := newMachine(1 << 30)
	idle := func(sweeps int, why string) {
		t.Helper()
		m.sweeps = 0
		for range 30 {
			m.state.allocated += 1000
			m.after(time.Second)
		}
		if m.sweeps != sweeps {
			t.Errorf("%s: got %d sweeps, want %d", why, m.sweeps, sweeps)
		}
	}
	idle(0, "a small heap")
	m.state.size, m.garbage = 40*mib, 20*mib
	m.sweeps = 0
	for range 20 {
		m.state.allocated += 10 * mib
		m.after(time.Second)
	}
	if m.sweeps != 0 {
		t.Errorf("a busy server: got %d sweeps, want none", m.sweeps)
	}
	idle(2, "a heap with garbage")
	m.garbage = 9 * mib
	idle(0, "a heap that has not grown")
	m.state.size += 500 * mib // causes a sweep while the server is busy
	m.state.allocated += 500 * mib
	m.after(time.Second)
	m.garbage = 500 * mib
	idle(2, "a heap that was in use when it was swept")
}

// TestGoLimitFollowsTheAccount checks that the runtime's limit rises at once with charged memory
// and falls later. It leaves room above the memory in use, more if collections are expensive.
func TestGoLimitFollowsTheAccount(t *testing.T) {
	m := newMachine(1 << 30)
	last := func() int64 { return m.limits[len(m.limits)-1] }
	m.after(time.Second)
	allowance := m.allowance()
	if len(m.limits) != 1 || last() != allowance+allowance/8 {
		t.Fatalf("at first: got %d, want a little above %d", m.limits, allowance)
	}
	m.Must(JSON, 400*mib)
	m.grow(400 * mib)
	if m.after(lookApart); len(m.limits) != 2 || last() < 400*mib+allowance || last() > 700*mib {
		t.Errorf("with 400 MiB: got %d", m.limits)
	}
	m.Must(JSON, 10*mib)
	if m.after(time.Second); len(m.limits) != 2 {
		t.Errorf("with a little more: got %d", m.limits)
	}
	m.give(JSON, 410*mib) // the heap keeps its size
	for range 10 {
		m.after(time.Second)
	}
	if len(m.limits) != 2 || last() < 3*m.state.live/2 {
		t.Errorf("in use and not charged: got %d, want room above %d", m.limits, m.state.live)
	}
	m.state.collecting, m.state.working = 5, 10
	if m.after(time.Second); len(m.limits) != 3 || last() < 2*m.state.live {
		t.Errorf("collections cost half of the time: got %d, want twice of %d", m.limits, m.state.live)
	}
	m.grow(-400 * mib)
	m.state.collecting, m.state.working = 5, 20
	for i := range 10 {
		if m.after(time.Second); (len(m.limits) == 4) != (i >= 1) {
			t.Errorf("%d s after all was freed: got %d", i, m.limits)
		}
	}
	if last() != allowance {
		t.Errorf("at last: got %d, want %d", last(), allowance)
	}
	m.limit, m.used = 2<<30, 1900*mib // tight: the limit follows at once, in both directions
	m.Must(Blocks, 200*mib)
	m.Must(JSON, 200*mib)
	if m.after(lookApart); last() != 200*mib+allowance {
		t.Errorf("in a tight group: got %d, want %d", last(), 200*mib+allowance)
	}
	m.give(JSON, 50*mib)
	if m.after(lookApart); last() != 150*mib+allowance {
		t.Errorf("in a tight group with less: got %d, want %d", last(), 150*mib+allowance)
	}
}

// BenchmarkLook measures the work of an idle server per second.
func BenchmarkLook(b *testing.B) {
	m := newMachine(1 << 30)
	m.heap = readHeap()
	limited := groups(os.ReadFile)[:1]
	m.group = func() (int64, int64) { return tightest(limited, headroom) }
	for b.Loop() {
		m.look()
	}
}

// TestScarceMemoryIsNoticed checks that memory counts as scarce long before it is low: when the
// control group is three quarters full, or the server has half of its maximum.
func TestScarceMemoryIsNoticed(t *testing.T) {
	m := newMachine(1000 * mib)
	m.limit = 1000 * mib
	for _, step := range []struct {
		name      string
		used, own int64
		want      bool
	}{
		{"most is free", 700, 0, false},
		{"the group is nearly full", 760, 0, true},
		{"there is room again", 700, 0, false},
		{"the server has much", 700, 600, true},
	} {
		m.used = step.used * mib
		m.grow(step.own * mib)
		if m.after(time.Second); Scarce() != step.want || m.Pressed() {
			t.Errorf("%s: got scarce %t, pressed %t, want %t and false", step.name, Scarce(), m.Pressed(), step.want)
		}
	}
	scarce.Store(false)
}
