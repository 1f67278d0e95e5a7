package infer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// region is foreign memory that counts references to it and to its copies.
type region struct {
	bytes        []byte
	gone         error
	refs, copies int
}

func (r *region) Retain()     { r.refs++ }
func (r *region) Release()    { r.refs-- }
func (r *region) Size() int64 { return int64(len(r.bytes)) }

func (r *region) Copy(context.Context) ([]byte, infer.Memory, error) {
	if r.gone != nil {
		return nil, nil, r.gone
	}
	r.copies++
	return append([]byte{}, r.bytes...), copied{r}, nil
}

type copied struct{ of *region }

func (c copied) Retain()  { c.of.copies++ }
func (c copied) Release() { c.of.copies-- }

func TestLocalizeCopiesForeignInputsOnce(t *testing.T) {
	held := &region{bytes: []byte("abcd"), refs: 1}
	r := infer.Request{Inputs: []infer.Tensor{{Name: "HEAP", Data: []byte{1}}, {Name: "EMPTY", Data: []byte{}}, {Name: "FOREIGN", Memory: held}}}
	if n := r.Inputs[2].Size(); n != 4 || r.Inputs[0].Size() != 1 || r.Inputs[1].Size() != 0 {
		t.Fatalf("sizes are %d, %d and %d, want 1, 0 and 4", r.Inputs[0].Size(), r.Inputs[1].Size(), n)
	}
	for range 2 { // the second call does nothing
		if err := r.Localize(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	in := &r.Inputs[2]
	if string(in.Data) != "abcd" || in.Size() != 4 || held.refs != 0 || held.copies != 1 {
		t.Errorf("got %q, %d references to the region and %d to copies, want abcd, 0, 1", in.Data, held.refs, held.copies)
	}
	in.Release()
	if held.copies != 0 {
		t.Errorf("%d copies are left, want none", held.copies)
	}
}

func TestLocalizeStopsAtTheFirstFailure(t *testing.T) {
	gone := errors.New("truncated")
	first, second := &region{bytes: []byte("a"), refs: 1}, &region{bytes: []byte("b"), refs: 1, gone: gone}
	r := infer.Request{Inputs: []infer.Tensor{{Memory: first}, {Memory: second}}}
	if err := r.Localize(t.Context()); !errors.Is(err, gone) {
		t.Fatalf("got error %v, want %v", err, gone)
	}
	for i := range r.Inputs {
		r.Inputs[i].Release()
	}
	if first.refs != 0 || first.copies != 0 || second.refs != 0 {
		t.Errorf("references: %d, %d of its copy, %d, want none", first.refs, first.copies, second.refs)
	}
}
