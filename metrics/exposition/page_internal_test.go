package exposition

import (
	"errors"
	"strings"
	"testing"
)

// TestLongPagesAreWrittenInPieces checks that each write consists of whole lines, and that writing
// stops after the first write error.
func TestLongPagesAreWrittenInPieces(t *testing.T) {
	write := func(to *Pieces) *Page {
		p := NewPage(to)
		p.Family("a", "b", "gauge")
		for i := range 30000 {
			p.Sample("", "", "", float64(i))
		}
		return p
	}
	var whole Pieces
	if err := write(&whole).Flush(); err != nil || len(whole.List) < 3 {
		t.Fatalf("got %d pieces and error %v, want some pieces", len(whole.List), err)
	}
	for _, piece := range whole.List {
		if len(piece) > pieceBytes+64 || !strings.HasSuffix(piece, "\n") {
			t.Errorf("a piece has %d bytes and ends with %q, want %d and a line at most, and whole lines", len(piece), piece[len(piece)-1:], pieceBytes)
		}
	}
	if lines := strings.Count(strings.Join(whole.List, ""), "\n"); lines != 30002 {
		t.Errorf("got %d lines, want 30002", lines)
	}
	broken := &Pieces{after: 2}
	p := write(broken)
	if err := p.Flush(); !errors.Is(err, errGone) || !p.Failed() || len(broken.List) != 2 {
		t.Errorf("got error %v and %d pieces of a writer that fails, want its error and 2", err, len(broken.List))
	}
}

func TestSamplesAllocateNothing(t *testing.T) {
	p := NewPage(&Pieces{})
	p.b = make([]byte, 0, pieceBytes)
	p.Family("a", "", "gauge")
	if n := testing.AllocsPerRun(100, func() { p.Sample("_sum", `x="1"`, `le="5"`, 17) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
