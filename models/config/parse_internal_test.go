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

// TestConfigsAreReadInOnePass checks that a config of many values is not copied for each of them.
func TestConfigsAreReadInOnePass(t *testing.T) {
	for _, value := range []string{"true", "false", "null", "1", "'a'", "{}", "{a:1}", "[]"} {
		text := []byte("{x:[" + strings.Repeat(value+",", 50_000) + "]}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := relaxed{text: text}
		if _, ok := r.value(0); !ok {
			t.Fatalf("%s: not read", value)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: %d MiB were allocated for a config of %d KiB", value, n>>20, len(text)>>10)
		}
	}
}
