package devserver

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/logs"
	"github.com/nereid-serving/nereid/models/diagnosis"
)

// Screen shows progress. logs.Console implements it.
type Screen interface {
	io.Writer
	SetStatus(text string)
}

// load is a model that is loaded at startup.
type load struct {
	model string
	began time.Time // zero while it waits
	ended bool
}

// Progress shows the loads of a server. It implements models.LoadObserver.
type Progress struct {
	screen  Screen
	colours logs.Palette
	now     func() time.Time

	mu     sync.Mutex
	start  map[string]*load // the models that are loaded at startup
	failed map[string]bool  // models with a version that did not load
	closed bool
}

// NewProgress returns a Progress that writes to screen until Close.
func NewProgress(screen Screen, colours logs.Palette) *Progress {
	return &Progress{screen: screen, colours: colours, now: time.Now, start: make(map[string]*load), failed: make(map[string]bool)}
}

// Close clears the status line.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.screen.SetStatus("")
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
func (p *Progress) Ended(model string, version int64, took time.Duration, fault *diagnosis.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.start[model]; l != nil {
		l.ended = true
	}
	mark, why := p.colours.Green("✓"), ""
	if fault != nil {
		mark, why = p.colours.Red("✗"), "    "+reason(*fault)+"\n"
		p.failed[model] = true
	}
	fmt.Fprintf(p.screen, "%s %s %d  %s\n%s", mark, command.Line(model), version, p.colours.Dim(seconds(took)), why)
	p.showLocked()
}

// HasFailed reports whether Progress has shown a failed load of the model.
func (p *Progress) HasFailed(model string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[model]
}

// lost is Triton's text about a process without a name. More text may follow it.
const lost = "Stub process '' is not healthy."

// reason describes a failed load in one line: location, error text and remedy.
func reason(fault diagnosis.Fault) string {
	if fault.Reason == lost {
		fault.Reason = "the model's process has exited, or does not answer"
	}
	fault.Reason = strings.TrimPrefix(fault.Reason, lost+" ")
	return command.Line(fault.Why())
}

// showLocked updates the status line: the number of loaded models and the names of those in
// progress.
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
	p.screen.SetStatus(text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
