package process

import (
	"fmt"
	"strings"
	"testing"
)

// TestSaysFirstKeepsABoundedNumberOfTexts checks that saysFirst reports each text once, and keeps a
// bounded number of bounded texts.
func TestSaysFirstKeepsABoundedNumberOfTexts(t *testing.T) {
	var m Model
	if !m.saysFirst("x") || m.saysFirst("x") {
		t.Error("a text is not said exactly once")
	}
	long := strings.Repeat("x", maxSaidText)
	if !m.saysFirst(long+"a") || m.saysFirst(long+"b") {
		t.Error("texts with the same beginning are not one")
	}
	for i := range 2 * maxSaid {
		m.saysFirst(fmt.Sprint(i) + long)
	}
	if len(m.said) != maxSaid {
		t.Errorf("%d texts are kept, want %d", len(m.said), maxSaid)
	}
	for text := range m.said {
		if len(text) > maxSaidText {
			t.Errorf("a text of %d bytes is kept, want at most %d", len(text), maxSaidText)
		}
	}
}
