package output

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestLineLimitDropsLinesBeyondABurst checks that lines beyond a burst are dropped, and that their
// number is logged.
func TestLineLimitDropsLinesBeyondABurst(t *testing.T) {
	var log bytes.Buffer
	logger := zerolog.New(&log)
	limit := NewLimit(Limits{Burst: 1000})
	limit.tokens, limit.last = 3, time.Now().Add(time.Hour)
	for i, want := range []bool{true, true, true, false, false} {
		if got := limit.Allow(logger, 1); got != want {
			t.Errorf("line %d: got %t, want %t", i, got, want)
		}
	}
	limit.last = time.Now().Add(-2 * lineTick)
	if !limit.Allow(logger, 1) || limit.tokens != 399 {
		t.Errorf("after two ticks: got %d tokens, want %d", limit.tokens, 399)
	}
	if !strings.Contains(log.String(), `"lines":2`) {
		t.Errorf("log is %q, want the number of lines that were dropped", log.String())
	}
}

// TestLineLimitIsThatOfItsConfig checks the configured rates. A rate below one line per tick still
// lets lines through eventually, and tokens never exceed a burst.
func TestLineLimitIsThatOfItsConfig(t *testing.T) {
	for name, test := range map[string]struct {
		limits Limits
		since  time.Duration
		want   int // tokens after one line
	}{
		"slow, too early":       {Limits{Burst: 5, PerSecond: 2}, 4 * lineTick, 0},
		"slow, in time":         {Limits{Burst: 5, PerSecond: 2}, 5 * lineTick, 0},
		"fast":                  {Limits{Burst: 5, PerSecond: 40}, lineTick, 3},
		"no more than a burst":  {Limits{Burst: 5, PerSecond: 40}, time.Hour, 4},
		"the most, for a year":  {Limits{Burst: math.MaxInt32, PerSecond: math.MaxInt32}, 366 * 24 * time.Hour, math.MaxInt32 - 1},
		"defaults, after a day": {Limits{}, 24 * time.Hour, 9_999},
	} {
		limit := NewLimit(test.limits)
		limit.tokens, limit.last = 0, time.Now().Add(-test.since)
		if got, want := limit.Allow(zerolog.Nop(), 1), name != "slow, too early"; got != want || limit.tokens != test.want {
			t.Errorf("%s: got %v with %d lines left, want %v with %d", name, got, limit.tokens, want, test.want)
		}
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
