package version

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

const chainConfig = `platform: "ensemble"
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "X" } },
  { model_name: "second" model_version: 1 input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "B" } } ] }
`

// TestEnsemblesReleaseWhatTheyHold closes a version that an ensemble's request has yet to call. It
// checks that the close waits for the request and that no hold is left.
func TestEnsemblesReleaseWhatTheyHold(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"first/config.pbtxt": echoConfig, "first/1/keep": "", "second/config.pbtxt": echoConfig, "second/1/keep": "",
		"chain/config.pbtxt": chainConfig, "chain/1/keep": "",
	})
	hold := make(chan struct{})
	s := newShelf(t, root, echoes{hold}, nil)
	loaded := make(map[string]*Version)
	for _, name := range []string{"first", "second", "chain"} {
		v, err := s.load(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded[name] = v
	}
	first, second := loaded["first"], loaded["second"]
	answered := make(chan string, 1) // one value
	go func() {
		text := "no response"
		err := loaded["chain"].Infer(t.Context(), &infer.Request{Model: "chain", Version: 1, Inputs: []infer.Tensor{
			{Name: "A", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}},
		}}, func(r *infer.Response) {
			if text = ""; r.Err != nil {
				text = r.Err.Message
			}
		})
		if err != nil {
			text = err.Error()
		}
		answered <- text
	}()
	testkit.Eventually(t, patience, func() bool { return first.InFlight() == 1 })
	closed := make(chan error, 1) // one value
	delete(s.versions, repository.Identity{Name: "second"})
	go func() { closed <- second.Close() }()
	testkit.Eventually(t, patience, func() bool { return second.holds.count.Load() < 0 })
	if _, can := second.Hold(); can {
		t.Error("a version that is being closed can be held")
	}
	if len(closed) > 0 {
		t.Error("the close does not wait for the request that is still to call the version")
	}
	close(hold)
	if text := <-answered; text != "" {
		t.Errorf("the request inside: %s", text)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := second.holds.count.Load(); got != closing {
		t.Errorf("%d requests hold the version that has ended", got-closing)
	}
	if got := (composed{second}).Dims("GONE"); got != nil {
		t.Errorf("an input that is not there has dims %v", got)
	}
}
