package config

import (
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
