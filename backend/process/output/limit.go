package output

import (
	"math"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/bounds"
)

// Cut shortens text to the maximum of one log line.
func Cut(text string) string { return CutAt(text, MaxLine) }

// CutAt shortens text to at most n bytes.
//
// bound: n, a limit of the caller
func CutAt(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// Limits limit the forwarded lines. 0 stands for the default of each.
type Limits struct {
	Burst     int // lines that may pass at once
	PerSecond int // lines per second after that
	LineBytes int // maximum of a line, the rest is cut
}

// Bounds lists the limits with their defaults and bounds.
func (l *Limits) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("Burst", &l.Burst, 10_000, 1, math.MaxInt32),
		bounds.Of("PerSecond", &l.PerSecond, 2_000, 1, math.MaxInt32),
		bounds.Of("LineBytes", &l.LineBytes, MaxLine, 1, 16<<20), // buffered for each stream of a process
	}
}

// Limit is a token bucket for lines, refilled in ticks. NewLimit creates one; it has no lock.
type Limit struct {
	limits  Limits
	tokens  int
	last    time.Time
	dropped int
}

// NewLimit returns a limit with a full burst.
func NewLimit(limits Limits) Limit {
	limits.Bounds().SetDefaults()
	return Limit{limits: limits, tokens: limits.Burst, last: time.Now()}
}

// Allow takes tokens for one or more lines, if any are left.
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
		log.Warn().Int("lines", l.dropped).Msg("output of the model was dropped because it prints too much")
		l.dropped = 0
	}
}
