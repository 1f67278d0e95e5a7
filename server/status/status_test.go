package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
)

func TestLogKeepsTheLastLinesWithinItsBounds(t *testing.T) {
	var l Log
	add := func(level zerolog.Level, text string) {
		l.Add(level, time.Unix(1, 0), []byte("a.go"), []byte("7"), []byte(text))
	}
	add(zerolog.ErrorLevel, "the first error")
	for i := range 3 * maxLines {
		add(zerolog.InfoLevel, fmt.Sprint("line ", i))
	}
	lines, last := l.Lines(0, 10*maxLines)
	if len(lines) != maxLines || last != 3*maxLines+1 || lines[len(lines)-1].Text != fmt.Sprint("line ", 3*maxLines-1) {
		t.Errorf("got %d lines up to %d, the last %q; want %d up to %d", len(lines), last, lines[len(lines)-1].Text, maxLines, 3*maxLines+1)
	}
	if got := lines[0]; got.Source != "a.go:7" || got.Level != "info" || !got.Time.Equal(time.Unix(1, 0)) {
		t.Errorf("got the line %+v", got)
	}
	if errors := l.Errors(0, 10); len(errors) != 1 || errors[0].Text != "the first error" || errors[0].Sequence != 1 || errors[0].Level != "error" {
		t.Errorf("got the errors %+v, want the first line in spite of all others", errors)
	}
	if lines, _ := l.Lines(last-2, 10); len(lines) != 2 {
		t.Errorf("got %d lines above the last but two, want 2", len(lines))
	}
	if lines, _ := l.Lines(last-20, 3); len(lines) != 3 || lines[2].Sequence != last {
		t.Errorf("got %+v, want the last 3 lines", lines)
	}
	if lines, _ := l.Lines(last, 10); len(lines) != 0 {
		t.Errorf("got %d lines above the last, want none", len(lines))
	}
	add(zerolog.WarnLevel, strings.Repeat("x", maxText+5))
	lines, _ = l.Lines(last, 1)
	if got, want := lines[0].Text, strings.Repeat("x", maxText)+"… (5 bytes more)"; got != want {
		t.Errorf("got %d bytes of a long line ending with %q", len(got), got[len(got)-20:])
	}
	text := len("a.go:7") + len(lines[0].Text)
	if got, want := l.size(last, 10), int64(lineBytes+text); got != want {
		t.Errorf("a line takes %d bytes, want %d", got, want)
	}
	if got, want := l.size(0, 1), int64(2*lineBytes+text+len("a.go:7")+len("the first error")); got != want {
		t.Errorf("a line and an error take %d bytes, want %d", got, want)
	}
	for range 3 * maxBytes / maxText {
		add(zerolog.ErrorLevel, strings.Repeat("y", maxText))
	}
	for _, r := range []*ring{&l.lines, &l.errors} {
		sum := 0
		for _, line := range r.after(0, maxLines) {
			sum += len(line.Source) + len(line.Text)
		}
		if sum != r.bytes() || sum > maxBytes || sum < maxBytes-2*maxText || cap(r.texts) > 2*maxBytes {
			t.Errorf("got %d bytes of text counted as %d in %d, want %d at most and almost, in twice as much", sum, r.bytes(), cap(r.texts), maxBytes)
		}
	}
}

func TestPercentilesAreInterpolated(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, c := range []struct {
		name   string
		counts []uint64
		want   *Percentiles
	}{
		{"nothing", []uint64{0, 0, 0, 0}, nil},
		{"one bucket", []uint64{0, 100, 0, 0}, &Percentiles{1.5, 1.9, 1.95, 1.99}},
		{"two", []uint64{50, 0, 50, 0}, &Percentiles{1, 3.6, 3.8, 3.96}},
		{"above the last", []uint64{0, 0, 0, 10}, &Percentiles{4, 4, 4, 4}},
	} {
		got := PercentilesOf(c.counts, bounds)
		if (got == nil) != (c.want == nil) || got != nil && fmt.Sprintf("%.6f", *got) != fmt.Sprintf("%.6f", *c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// world is a server with one version, whose figures a test changes.
type world struct {
	mu      sync.Mutex
	figures metrics.Figures
	hangs   chan struct{} // if not nil, collections wait until it is closed
}

// count returns a copy of the figures.
func (w *world) count() []metrics.Figures {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.figures
	if f.Stages != nil {
		stages := *f.Stages
		f.Stages = &stages
	}
	return []metrics.Figures{f}
}

// hang makes collections wait until the channel is closed.
func (w *world) hang(until chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs = until
}

func (w *world) waits() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hangs
}

// reload reloads the version.
func (w *world) reload() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures = metrics.Figures{Model: "m", Version: 1, Stages: new(metrics.Stages)}
}

func (w *world) keeper() *Keeper {
	return NewKeeper(Config{
		Server: func() Server { return Server{Name: "triton"} },
		Versions: func() []models.VersionStatus {
			if hangs := w.waits(); hangs != nil {
				<-hangs
			}
			return []models.VersionStatus{
				{Name: "m", Version: 1, State: "READY", InFlight: 3, Info: &models.Info{}, Instances: []string{"m_0_0"}},
				{Name: "linked", Version: 2, State: "READY", Info: &models.Info{}, Instances: []string{"linked_0_0"}},
				{Name: "bad", Version: 1, State: "UNAVAILABLE", Reason: "no"},
			}
		},
		Figures: w.count,
		Instances: func() []Instance {
			return []Instance{{Name: "m_0_0", State: "busy", PID: 7, Model: "m", Version: 1}, {Name: "bad_0_0", State: "starting", Model: "bad", Version: 1}}
		},
		Log: zerolog.Nop(),
	})
}

// serve counts requests in a bucket of the histogram.
func (w *world) serve(requests int, bucket int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures.Succeeded += int64(requests)
	w.figures.Stages[0].Counts[bucket] += uint64(requests)
}

func TestKeeperJoinsAndRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{figures: metrics.Figures{Model: "m", Version: 1, Pending: 5, Stages: new(metrics.Stages), Failed: map[string]int64{"OTHER": 1}}}
		k := w.keeper()
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		synctest.Wait()

		s := k.Snapshot(ctx, 0, 10)
		if len(s.Versions) != 3 || s.Versions[0].Model != "bad" || s.Versions[2].Model != "m" {
			t.Fatalf("got %+v, want bad, linked and m", s.Versions)
		}
		bad, linked, m := s.Versions[0], s.Versions[1], s.Versions[2]
		if bad.Reason != "no" || len(bad.Instances) != 1 || bad.Instances[0].State != "starting" {
			t.Errorf("got %+v, want the reason and the instance that starts", bad)
		}
		if len(linked.Instances) != 1 || linked.Instances[0].State != "ready" || linked.Instances[0].PID != 0 {
			t.Errorf("got %+v, want an instance without a process", linked.Instances)
		}
		if m.Queue != 5 || m.InFlight != 5 || len(m.Instances) != 1 || m.Instances[0].State != "busy" || m.Counters.Failures() != 1 {
			t.Errorf("got %+v", m)
		}

		// 100 requests per minute in the bucket up to 250 µs, then 900 requests in the bucket up to
		// 10 ms.
		for range 14 * 6 {
			w.serve(100, 2)
			time.Sleep(Step)
		}
		w.serve(900, 7)
		time.Sleep(time.Second)
		m = k.Snapshot(ctx, 0, 0).Versions[2]
		for i, want := range []struct {
			succeeded int64
			median    float64
		}{{600 + 900, 0.006}, {3000 + 900, 0.0002}, {84*100 + 900, 0.0002}} {
			w := m.Recent[i]
			if w.Succeeded < want.succeeded-100 || w.Succeeded > want.succeeded+100 || w.Request == nil || w.Request.P50 < want.median*0.5 || w.Request.P50 > want.median*1.5 {
				t.Errorf("the last %d s: got %d requests, half of them within %+v s; want about %d, %v", w.Seconds, w.Succeeded, w.Request, want.succeeded, want.median)
			}
		}
		if long := m.Recent[2]; long.Covered < 830 || long.Covered > 845 || long.Failed != 1 {
			t.Errorf("got %+v, want the failure and 841 seconds covered", long)
		}
		time.Sleep(20 * time.Minute)
		if m = k.Snapshot(ctx, 0, 0).Versions[2]; m.Recent[2].Succeeded != 0 || m.Recent[2].Request != nil {
			t.Errorf("got %+v after 20 idle minutes, want nothing", m.Recent[2])
		}

		// After a reload the counters start from 0.
		w.reload()
		w.serve(3, 2)
		time.Sleep(time.Second)
		if m = k.Snapshot(ctx, 0, 0).Versions[2]; m.Recent[0].Succeeded != 3 {
			t.Errorf("got %+v, want the 3 requests since the load", m.Recent[0])
		}
		cancel()
		synctest.Wait()
	})
}

func TestHistoryIsBounded(t *testing.T) {
	begin := time.Unix(1000, 0)
	h := &history{points: []point{{at: begin}}}
	at := begin
	for i := range 3 * Points {
		at = at.Add(Step)
		h.keep(point{at: at, succeeded: uint32(i + 1)})
	}
	if n := len(h.points); n != Points {
		t.Errorf("got %d points of a busy version, want %d", n, Points)
	}
	if w := h.recent(&point{at: at, succeeded: 3 * Points}, false)[2]; w.Covered != 900 || w.Succeeded != 90 {
		t.Errorf("got %+v, want 90 requests in 900 s", w)
	}
	for range 3 * Points {
		at = at.Add(Step)
		h.keep(point{at: at, succeeded: 3 * Points})
	}
	if n := len(h.points); n > 3 {
		t.Errorf("got %d points of an idle version, want 3 at most", n)
	}
}

// TestReadersWaitForNothing checks that Snapshot returns the previous snapshot while a collection
// is blocked, for example by a lock that a load holds.
func TestReadersWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{figures: metrics.Figures{Model: "m", Version: 1}}
		k := w.keeper()
		ctx, cancel := context.WithCancel(t.Context())
		go k.Run(ctx)
		synctest.Wait()
		before := k.Snapshot(ctx, 0, 0)
		hangs := make(chan struct{})
		w.hang(hangs)
		time.Sleep(time.Second)
		for range 3 {
			began := time.Now()
			if got := k.Snapshot(ctx, 0, 0); !got.At.Equal(before.At) || time.Since(began) > patience {
				t.Errorf("got a snapshot of %s after %s, want that of %s within %s", got.At, time.Since(began), before.At, patience)
			}
		}
		k.config.Lines.Add(zerolog.InfoLevel, time.Now(), nil, nil, []byte("still here"))
		if got := k.Snapshot(ctx, 0, 1); len(got.Log) != 1 {
			t.Errorf("got %+v, want the line that came meanwhile", got.Log)
		}
		close(hangs)
		synctest.Wait()
		time.Sleep(time.Second)
		if got := k.Snapshot(ctx, 0, 0); !got.At.After(before.At) {
			t.Errorf("got a snapshot of %s once nothing hangs, want a newer one", got.At)
		}
		cancel()
		synctest.Wait()
	})
}

func TestSnapshotHasListsWhereThereIsNothing(t *testing.T) {
	k := NewKeeper(Config{})
	k.last.Store(&Snapshot{At: time.Now(), Versions: []Version{}})
	text, err := json.Marshal(k.Snapshot(t.Context(), 0, 0))
	if err != nil || strings.Contains(string(text), `"log":null`) || strings.Contains(string(text), `"errors":null`) {
		t.Errorf("got %s, %v; want lists", text, err)
	}
}
