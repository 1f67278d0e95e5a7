package infer_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// TestWrittenOutputs checks that an output in place has its own size, not the place's. Localize
// copies only its bytes and releases the place.
func TestWrittenOutputs(t *testing.T) {
	place := &region{bytes: []byte("abcdefgh"), refs: 2}
	out := infer.Tensor{Name: "OUT", DataType: infer.Uint8, Shape: []int64{5}, Memory: &infer.Written{Foreign: place, Bytes: 5}}
	if !out.InPlace() || out.Size() != 5 || out.Data != nil {
		t.Errorf("in its place: %v, %d bytes, want 5", out.InPlace(), out.Size())
	}
	for _, other := range []infer.Tensor{{}, {Data: []byte{1}}, {Memory: place}} {
		if other.InPlace() {
			t.Errorf("%+v is in its place, want not", other)
		}
	}
	place.gone = errors.New("gone")
	if err := out.Localize(t.Context()); !errors.Is(err, place.gone) || !out.InPlace() {
		t.Errorf("got error %v, want %v and the output as it was", err, place.gone)
	}
	place.gone = nil
	if err := out.Localize(t.Context()); err != nil || !bytes.Equal(out.Data, []byte("abcde")) || out.InPlace() || place.refs != 1 || place.copies != 1 {
		t.Errorf("got %q, error %v, %d references of the place and %d of copies, want abcde, one and one", out.Data, err, place.refs, place.copies)
	}
	out.Release()
	if place.refs != 1 || place.copies != 0 {
		t.Errorf("%d references of the place and %d of copies, want one and none", place.refs, place.copies)
	}
}
