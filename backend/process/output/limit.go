package output

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Cut shortens text to what one line of the log may hold.
func Cut(text string) string { return CutAt(text, MaxLine) }

// CutAt shortens text to at most n bytes.
func CutAt(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// Limits bound what is passed on. 0 is the default of each.
type Limits struct {
	Burst     int // lines that are let through at once; default 10,000
	PerSecond int // lines that follow; default 2,000
	LineBytes int // passed on of a printed line, the rest is cut; default MaxLine
}

// WithDefaults returns l with what holds where a field is not set.
func (l Limits) WithDefaults() Limits {
	return Limits{cmp.Or(l.Burst, 10_000), cmp.Or(l.PerSecond, 2_000), cmp.Or(l.LineBytes, MaxLine)}
}

// Limit lets a burst of lines through, and then so many a second, looked at in ticks.
// NewLimit makes one; it has no lock.
type Limit struct {
	limits  Limits
	tokens  int
	last    time.Time
	dropped int
}

// NewLimit returns a limit that lets its first burst through.
func NewLimit(limits Limits) Limit {
	limits = limits.WithDefaults()
	return Limit{limits: limits, tokens: limits.Burst, last: time.Now()}
}

// Allow takes a line, or several, if there are any left.
func (l *Limit) Allow(log zerolog.Logger, lines int) bool {
	if l.tokens <= 0 {
		ticks := min(time.Since(l.last)/lineTick, math.MaxInt32)
		fresh := int(ticks) * l.limits.PerSecond / int(time.Second/lineTick)
		if fresh <= 0 {
			l.dropped++
			return false
		}
		l.tokens = min(fresh, l.limits.Burst)
		l.last = time.Now()
		l.report(log)
	}
	l.tokens -= lines
	return true
}

func (l *Limit) report(log zerolog.Logger) {
	if l.dropped > 0 {
		log.Warn().Int("lines", l.dropped).Msg("output of the model was dropped, it prints too much")
		l.dropped = 0
	}
}
