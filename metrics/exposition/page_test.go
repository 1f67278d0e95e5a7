package exposition_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

func TestPagesAreWrittenInTheTextFormat(t *testing.T) {
	var to exposition.Pieces
	p := exposition.NewPage(&to)
	p.Family("none", "it has no sample", "counter")
	p.Family("a_total", "A \\ and\na line", "counter")
	p.Sample("", "", "", 5)
	p.Sample("", exposition.Labels([2]string{"x", "1\"\\\n"}, [2]string{"y", ""}), "", 0.5)
	p.Family("h", "", "histogram")
	p.Sample("_bucket", `x="1"`, exposition.Last("le", 0.0001), 1)
	p.Sample("_bucket", "", exposition.Last("le", math.Inf(1)), 2)
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP a_total A \\ and\na line
# TYPE a_total counter
a_total 5
a_total{x="1\"\\\n",y=""} 0.5
# TYPE h histogram
h_bucket{x="1",le="0.0001"} 1
h_bucket{le="+Inf"} 2
`
	if got := strings.Join(to.List, "|"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := p.Flush(); err != nil || len(to.List) != 1 {
		t.Errorf("a second Flush: got error %v and %d pieces, want neither an error nor another piece", err, len(to.List))
	}
}

func TestNumbersAreTritons(t *testing.T) {
	for _, tt := range []struct {
		value float64
		want  string
	}{
		{0, "0"},
		{math.Copysign(0, -1), "-0"},
		{-7, "-7"},
		{1e6, "1000000"},
		{999999999999999, "999999999999999"},
		{1e15, "1000000000000000"},
		{-1e15, "-1000000000000000"},
		{1e16, "1e+16"},
		{1 << 53, "9007199254740992"},
		{math.MaxUint64, "1.8446744073709552e+19"},
		{0.1, "0.1"},
		{0.30000000000000004, "0.30000000000000004"},
		{5e-05, "5e-05"},
		{math.NaN(), "Nan"},
		{math.Inf(1), "+Inf"},
		{math.Inf(-1), "-Inf"},
	} {
		if got := string(exposition.AppendNumber([]byte("x "), tt.value)); got != "x "+tt.want {
			t.Errorf("%g: got %q, want %q", tt.value, got, "x "+tt.want)
		}
	}
}
