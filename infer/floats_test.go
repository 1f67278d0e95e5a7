package infer_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestToFP16 converts numbers at the edges of FP16's range.
func TestToFP16(t *testing.T) {
	for v, want := range map[float32]uint16{0: 0, 1: 0x3c00, -2: 0xc000, .5: 0x3800, 65504: 0x7bff, 1e9: 0x7c00, 1e-9: 0} {
		if got := infer.ToFP16(v); got != want {
			t.Errorf("ToFP16(%v): got %#x, want %#x", v, got, want)
		}
	}
}
