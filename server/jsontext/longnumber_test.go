package jsontext_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// TestLongNumbers checks that numbers with many digits have the same value as in strconv, which
// reads all digits, and that reading them takes no memory proportional to their length.
func TestLongNumbers(t *testing.T) {
	zeros, nines := strings.Repeat("0", 2000), strings.Repeat("9", 2000)
	half := "1.00000000000000011102230246251565404236316680908203125" // between 1 and the next double
	for _, text := range []string{
		"0." + nines, "-0." + nines, "1." + zeros, "0." + zeros + "5", "0." + zeros + "25e2001", "-12.5" + zeros + "e-3",
		half, half + zeros, half + zeros + "1", "-" + half + zeros + "1e5", "0." + zeros, "-0." + zeros + "e7", "1." + nines + "E300", "3." + nines + "e308",
		"123456789." + nines + "e+12",
	} {
		want, _ := strconv.ParseFloat(text, 64)
		got, end, ok := jsontext.ReadFloat([]byte(text), 0)
		if got != want || end != len(text) || !ok {
			t.Errorf("%.30s…: got %v, %d and %t, want %v and %d", text, got, end, ok, want, len(text))
		}
	}
	long := []byte("0." + strings.Repeat("9", 1<<20))
	if got := testkit.Allocated(func() { jsontext.ReadFloat(long, 0) }); got > 64<<10 {
		t.Errorf("a number of 1 MiB: got %d bytes allocated, want at most 64 KiB", got)
	}
}
