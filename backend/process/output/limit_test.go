package output

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestLineLimitDropsWhatExceedsABurst lets a burst through, drops what exceeds it, and says
// how much.
func TestLineLimitDropsWhatExceedsABurst(t *testing.T) {
	var log bytes.Buffer
	logger := zerolog.New(&log)
	limit := Limit{tokens: 3, last: time.Now().Add(time.Hour)}
	for i, want := range []bool{true, true, true, false, false} {
		if got := limit.Allow(logger, 1); got != want {
			t.Errorf("line %d: got %t, want %t", i, got, want)
		}
	}
	limit.last = time.Now().Add(-2 * lineTick)
	if !limit.Allow(logger, 1) || limit.tokens != 2*linesPerTick-1 {
		t.Errorf("after two ticks: got %d tokens, want %d", limit.tokens, 2*linesPerTick-1)
	}
	if !strings.Contains(log.String(), `"lines":2`) {
		t.Errorf("log is %q, want the number of lines that were dropped", log.String())
	}
}

func TestCutKeepsWholeLetters(t *testing.T) {
	if got := Cut("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	if got := Cut(strings.Repeat("x", MaxLine-1) + "ü"); got != strings.Repeat("x", MaxLine-1) {
		t.Errorf("got %d bytes, want the text without half a letter", len(got))
	}
}
