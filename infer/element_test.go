package infer_test

import (
	"math"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestNumbersAreElements parses numbers of each type at the edges of its range, writes them as
// elements and reads them back.
func TestNumbersAreElements(t *testing.T) {
	for text, types := range map[string][]infer.DataType{
		"true":                 {infer.Bool},
		"false":                {infer.Bool},
		"255":                  {infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64, infer.Int16, infer.Int32, infer.Int64},
		"65535":                {infer.Uint16, infer.Uint32, infer.Uint64, infer.Int32, infer.Int64},
		"4294967295":           {infer.Uint32, infer.Uint64, infer.Int64},
		"18446744073709551615": {infer.Uint64},
		"-128":                 {infer.Int8, infer.Int16, infer.Int32, infer.Int64},
		"-32768":               {infer.Int16, infer.Int32, infer.Int64},
		"-2147483648":          {infer.Int32, infer.Int64},
		"-9223372036854775808": {infer.Int64},
	} {
		for d := infer.Bool; d <= infer.Int64; d++ {
			bits, err := d.ParseNumber(text)
			element := make([]byte, d.Size())
			infer.PutBits(element, bits)
			switch got := string(d.AppendNumber(nil, element)); {
			case err != nil && slices.Contains(types, d):
				t.Errorf("%q as %s: %v", text, d, err)
			case err == nil && !slices.Contains(types, d):
				t.Errorf("%q as %s: got %s, want an error", text, d, got)
			case err == nil && got != text:
				t.Errorf("%q as %s: got %s", text, d, got)
			}
		}
	}
}

// TestFloatsAreElements is TestNumbersAreElements for floating-point numbers. NaN stands for an
// error.
func TestFloatsAreElements(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for text, want := range map[string][4]float64{ // FP16, FP32, FP64, BF16
		"-1.5":  {-1.5, -1.5, -1.5, -1.5},
		"65504": {65504, 65504, 65504, 65536},
		"1e5":   {nan, 1e5, 1e5, 99840},
		"1e39":  {nan, nan, 1e39, nan},
		"1e400": {nan, nan, nan, nan},
		"Inf":   {inf, inf, inf, inf},
		"one":   {nan, nan, nan, nan},
	} {
		for i, d := range []infer.DataType{infer.FP16, infer.FP32, infer.FP64, infer.BF16} {
			got := nan
			if bits, err := d.ParseNumber(text); err == nil {
				element := make([]byte, d.Size())
				infer.PutBits(element, bits)
				got = d.Float(element)
			}
			if got != want[i] && !(math.IsNaN(got) && math.IsNaN(want[i])) {
				t.Errorf("%q as %s: got %v, want %v", text, d, got, want[i])
			}
		}
	}
}
