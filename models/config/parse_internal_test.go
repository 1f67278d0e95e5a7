package config

import (
	"runtime"
	"strings"
	"testing"
)

// TestConfigsNestToTheDepthOfAllJSON checks that configs may nest 100 levels deep, like the JSON of
// requests.
func TestConfigsNestToTheDepthOfAllJSON(t *testing.T) {
	for depth, want := range map[int]bool{100: true, 101: false} {
		text := "{'a':" + strings.Repeat("[", depth-1) + "1" + strings.Repeat("]", depth-1) + "}"
		r := relaxed{text: []byte(text)}
		if _, got := r.value(0); got != want {
			t.Errorf("depth %d: got %t, want %t", depth, got, want)
		}
	}
}

// TestConfigsAreReadInOnePass checks that the memory for reading a config grows with its length,
// not with the square.
func TestConfigsAreReadInOnePass(t *testing.T) {
	for _, value := range []string{"true", "false", "null", "1", "'a'", "{}", "{a:1}", "[]"} {
		half, whole := allocated(t, value, 10_000), allocated(t, value, 20_000)
		if whole > 3*half {
			t.Errorf("%s: %d KiB were allocated for half a config and %d KiB for all of it", value, half>>10, whole>>10)
		}
	}
}

// allocated returns how many bytes are allocated while a config of count values is read.
func allocated(t *testing.T, value string, count int) uint64 {
	t.Helper()
	r := relaxed{text: []byte("{x:[" + strings.Repeat(value+",", count) + "]}")}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := r.value(0)
	runtime.ReadMemStats(&after)
	if !ok {
		t.Fatalf("%s: not read", value)
	}
	return after.TotalAlloc - before.TotalAlloc
}
