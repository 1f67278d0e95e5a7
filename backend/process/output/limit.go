package output

import (
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

// Limit lets a burst of lines through, and then so many in each tick. NewLimit makes
// one; it has no lock.
type Limit struct {
	tokens  int
	last    time.Time
	dropped int
}

// NewLimit returns a limit that lets its first burst through.
func NewLimit() Limit { return Limit{tokens: linesAtOnce, last: time.Now()} }

// Allow takes a line, or several, if there are any left.
func (l *Limit) Allow(log zerolog.Logger, lines int) bool {
	if l.tokens <= 0 {
		ticks := int(time.Since(l.last) / lineTick)
		if ticks <= 0 {
			l.dropped++
			return false
		}
		l.tokens = min(ticks*linesPerTick, linesAtOnce)
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
