package generate

import (
	"errors"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// TestMemoryIsGivenBack checks that accepted and rejected requests release their memory.
func TestMemoryIsGivenBack(t *testing.T) {
	for _, text := range []string{`{"N":[1,2]}`, `{"N":[1,2],"M":[1,"x"]}`, `{"N":[1,2],"N":3}`} {
		q := NewRequest(false, &kserve.ModelInput{Name: "N", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}},
			&kserve.ModelInput{Name: "M", DataType: kserve.DataType_TYPE_INT64, Dims: []int64{-1}})
		_ = Decode(t, q, text)
		q.Release()
		q.Release()
		if n := q.charge.Account.Used(budget.Bodies); n != 0 {
			t.Errorf("%s: %d bytes are still charged", text, n)
		}
	}
}

// TestOutputWithoutFormInJSONIsAnErrorOfItsEvent checks that an output that has no JSON form makes
// its event a complete error.
func TestOutputWithoutFormInJSONIsAnErrorOfItsEvent(t *testing.T) {
	q := NewRequest(false)
	for _, out := range []infer.Tensor{
		{Name: "h", DataType: infer.FP16, Shape: []int64{1}, Data: make([]byte, 2)},
		{Name: "b", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte{9, 0, 0, 0}},
		{Name: "n", DataType: infer.Int32, Shape: []int64{2}, Data: make([]byte, 4)},
	} {
		got := string(q.AppendEvent(nil, &infer.Response{Model: "m", Outputs: []infer.Tensor{out}}))
		if !strings.HasPrefix(got, `data: {"error":"`) || !strings.HasSuffix(got, "\"}\n\n") || strings.Count(got, "{") != 1 {
			t.Errorf("%s: got %q", out.Name, got)
		}
	}
	if q.charge.Account.Used(budget.JSON) == 0 {
		t.Error("a text that has not been sent is not charged")
	}
	q.Sent()
	if n := q.charge.Account.Used(budget.JSON); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

func TestQueueHandsOverInOrderAndThenItsEnd(t *testing.T) {
	q, s := newQueue(), &slot{}
	refused := errors.New("refused")
	go func() {
		for i := range 100 {
			q.take(&infer.Response{Version: int64(i), Slot: s})
			q.take(&infer.Response{Empty: true, Slot: s})
		}
		q.end(refused)
		q.end(nil)
	}()
	next := int64(0)
	var space []*infer.Response
	for {
		list, last, err := q.next(space)
		for _, r := range list {
			if r.Version != next {
				t.Fatalf("got %d, want %d", r.Version, next)
			}
			next++
			r.Release()
		}
		space = list
		if !last {
			continue
		}
		if next != 100 || !errors.Is(err, refused) || s.released.Load() != 200 {
			t.Errorf("%d responses, %v, %d released", next, err, s.released.Load())
		}
		return
	}
}

func TestClosedQueueReleasesResponses(t *testing.T) {
	q, s := newQueue(), &slot{}
	q.take(&infer.Response{Slot: s})
	q.close()
	q.take(&infer.Response{Slot: s})
	q.close()
	if n := s.released.Load(); n != 2 {
		t.Errorf("%d released, want 2", n)
	}
}
