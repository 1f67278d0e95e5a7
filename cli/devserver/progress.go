package devserver

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/panics"
)

// Screen is where progress is shown: a logs.Console.
type Screen interface {
	io.Writer
	SetStatus(text string)
}

// load is a model of the start, or a version that is being loaded.
type load struct {
	model string
	began time.Time // zero while it waits
	ended bool
}

// Progress shows the loads of a server. It implements models.LoadObserver.
type Progress struct {
	screen  Screen
	colours logs.Palette
	threads int // loads that may run at a time
	times   *Times
	now     func() time.Time

	mu     sync.Mutex
	start  map[string]*load // the models of the start
	sum    time.Duration    // of the loads that have ended well
	count  int              // how many they are
	failed map[string]bool  // the models of which something did not load
	closed bool

	stop, stopped chan struct{} // closed by Close, and by the goroutine
}

// NewProgress makes a Progress and starts its goroutine, which Close ends. Threads is how many loads
// run at a time.
func NewProgress(screen Screen, colours logs.Palette, threads int, times *Times, log zerolog.Logger) *Progress {
	p := &Progress{
		screen: screen, colours: colours, threads: max(threads, 1), times: times, now: time.Now,
		start: make(map[string]*load), failed: make(map[string]bool), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	panics.Go(log, panics.Server, func() {
		defer close(p.stopped)
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				p.show()
			case <-p.stop:
				return
			}
		}
	}, nil)
	return p
}

// Close takes the status away and writes the times down.
func (p *Progress) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return
	}
	close(p.stop)
	<-p.stopped
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.SetStatus("")
	p.times.write()
}

// Planned implements models.LoadObserver.
func (p *Progress) Planned(models []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range models {
		p.start[m] = &load{model: m}
	}
	p.showLocked()
}

// Began implements models.LoadObserver.
func (p *Progress) Began(model string, _ int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.start[model]; l != nil && l.began.IsZero() {
		l.began = p.now()
	}
	p.showLocked()
}

// Ended implements models.LoadObserver.
func (p *Progress) Ended(model string, version int64, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.start[model]; l != nil {
		l.ended = true
	}
	mark, why := p.colours.Green("✓"), ""
	if err != nil {
		mark, why = p.colours.Red("✗"), "    "+reason(model, err)+"\n"
		p.failed[model] = true
	} else {
		p.sum += took
		p.count++
		p.times.note(model, took)
	}
	fmt.Fprintf(p.screen, "%s %s %d  %s\n%s", mark, command.Line(model), version, p.colours.Dim(seconds(took)), why)
	p.showLocked()
}

// HasFailed reports whether it has been shown that a model, or a version of it, did not load.
func (p *Progress) HasFailed(model string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[model]
}

// lost is Triton's text about a process that has no name yet; more may follow.
const lost = "Stub process '' is not healthy."

// reason is one line about a load that failed: the place, the text and the remedy.
func reason(model string, err error) string {
	fault := diagnosis.Of(model, "", "", err)
	if fault.Reason == lost {
		fault.Reason = "the model's process has ended, or does not answer"
	}
	fault.Reason = strings.TrimPrefix(fault.Reason, lost+" ")
	return command.Line(strings.TrimPrefix(fault.String(), model+": "))
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.showLocked()
}

// showLocked shows how far the start is.
func (p *Progress) showLocked() {
	if p.closed {
		return
	}
	done := 0
	var under []*load
	for _, l := range p.start {
		switch {
		case l.ended:
			done++
		case !l.began.IsZero():
			under = append(under, l)
		}
	}
	if done == len(p.start) {
		p.screen.SetStatus("")
		return
	}
	slices.SortFunc(under, func(a, b *load) int { return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.model, b.model)) })
	text := fmt.Sprintf("loading %d of %d", min(done+1, len(p.start)), len(p.start))
	for i, l := range under {
		text += map[bool]string{true: ": ", false: ", "}[i == 0] + l.model
	}
	if left, known := p.leftLocked(); known {
		text += "; " + left
	}
	p.screen.SetStatus(text)
}

// leftLocked says how long the rest of the start is likely to take. Loads run side by side, so that is no less than
// the longest of them, and no less than the fair share of each thread.
func (p *Progress) leftLocked() (text string, known bool) {
	var sum, longest time.Duration
	now := p.now()
	for _, l := range p.start {
		if l.ended {
			continue
		}
		whole := p.times.of(l.model)
		if whole == 0 && p.count > 0 {
			whole = p.sum / time.Duration(p.count)
		}
		if whole == 0 {
			return "", false
		}
		if !l.began.IsZero() {
			whole -= now.Sub(l.began)
		}
		whole = max(whole, 0)
		sum += whole
		longest = max(longest, whole)
	}
	left := max(longest, sum/time.Duration(p.threads))
	switch {
	case left < time.Second:
		return "a moment left", true
	case left < 2*time.Minute:
		return fmt.Sprintf("about %d s left", int(left.Round(time.Second)/time.Second)), true
	}
	return fmt.Sprintf("about %d min left", int(left.Round(time.Minute)/time.Minute)), true
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
