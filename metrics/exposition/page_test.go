package exposition

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// pieces keeps the writes, and fails after a number of them; 0: never.
type pieces struct {
	list  []string
	after int
}

var errGone = errors.New("the client has gone")

func (p *pieces) Write(b []byte) (int, error) {
	p.list = append(p.list, string(b))
	if len(p.list) == p.after {
		return 0, errGone
	}
	return len(b), nil
}

func TestPagesAreWrittenInTheTextFormat(t *testing.T) {
	var to pieces
	p := NewPage(&to)
	p.Family("none", "it has no sample", "counter")
	p.Family("a_total", "A \\ and\na line", "counter")
	p.Sample("", "", "", 5)
	p.Sample("", Labels([2]string{"x", "1\"\\\n"}, [2]string{"y", ""}), "", 0.5)
	p.Family("h", "", "histogram")
	p.Sample("_bucket", `x="1"`, Last("le", 0.0001), 1)
	p.Sample("_bucket", "", Last("le", math.Inf(1)), 2)
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
	if got := strings.Join(to.list, "|"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := p.Flush(); err != nil || len(to.list) != 1 {
		t.Errorf("a second Flush: got error %v and %d pieces, want neither an error nor another piece", err, len(to.list))
	}
}

// TestLongPagesAreWrittenInPieces: whole lines each, and no more once the writer has failed.
func TestLongPagesAreWrittenInPieces(t *testing.T) {
	write := func(to *pieces) *Page {
		p := NewPage(to)
		p.Family("a", "b", "gauge")
		for i := range 30000 {
			p.Sample("", "", "", float64(i))
		}
		return p
	}
	var whole pieces
	if err := write(&whole).Flush(); err != nil || len(whole.list) < 3 {
		t.Fatalf("got %d pieces and error %v, want some pieces", len(whole.list), err)
	}
	for _, piece := range whole.list {
		if len(piece) > pieceBytes+64 || !strings.HasSuffix(piece, "\n") {
			t.Errorf("a piece has %d bytes and ends with %q, want %d and a line at most, and whole lines", len(piece), piece[len(piece)-1:], pieceBytes)
		}
	}
	if lines := strings.Count(strings.Join(whole.list, ""), "\n"); lines != 30002 {
		t.Errorf("got %d lines, want 30002", lines)
	}
	broken := &pieces{after: 2}
	p := write(broken)
	if err := p.Flush(); !errors.Is(err, errGone) || !p.Failed() || len(broken.list) != 2 {
		t.Errorf("got error %v and %d pieces of a writer that fails, want its error and 2", err, len(broken.list))
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
		if got := string(AppendNumber([]byte("x "), tt.value)); got != "x "+tt.want {
			t.Errorf("%g: got %q, want %q", tt.value, got, "x "+tt.want)
		}
	}
}

func TestSamplesAllocateNothing(t *testing.T) {
	p := NewPage(&pieces{})
	p.b = make([]byte, 0, pieceBytes)
	p.Family("a", "", "gauge")
	if n := testing.AllocsPerRun(100, func() { p.Sample("_sum", `x="1"`, `le="5"`, 17) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
