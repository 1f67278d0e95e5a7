package budget

import (
	"strings"
	"testing"
)

// TestPressedRefusesLargeBodies checks that bodies over 64 KiB are refused while memory is low,
// even if they arrive in small steps. Smaller bodies are accepted.
func TestPressedRefusesLargeBodies(t *testing.T) {
	a := New(Config{Limit: 64 << 20})
	a.pressed.Store(true)
	c := Charge{Account: a}
	for n := range 2 {
		err := c.Take(JSON, 40<<10)
		if (err != nil) != (n == 1) {
			t.Errorf("step %d of 40 KiB: got %v", n+1, err)
		}
	}
	if err := a.Take(Bodies, 65<<10); err == nil || !strings.Contains(err.Error(), "short of memory") {
		t.Errorf("65 KiB at once: got %v, want a refusal", err)
	}
	if err := a.Take(Replies, 1<<20); err != nil {
		t.Errorf("a reply: %v", err)
	}
	if a.Admit(64<<10) != nil || a.Admit(64<<10+1) == nil {
		t.Error("Admit takes 64 KiB and no more")
	}
	a.Give(Replies, 1<<20)
	c.Settle()
}
