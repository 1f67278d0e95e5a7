package models_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestAPanicEndsItsOwnLoad checks that a panic fails only its own load, that other models still
// serve, and that the model loads and unloads once the bug is gone.
func TestAPanicEndsItsOwnLoad(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"good": {1}, "bad": {1}}), b, explicit("good"))
	for _, place := range []string{"Open", "Start"} {
		before := testkit.Panics()
		b.fails(place)
		wantError(t, r.Load(t.Context(), "bad", "", nil), infer.InvalidArg,
			"load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: internal error;\n")
		if got := testkit.Panics(); got != before+1 {
			t.Errorf("%s: got %d panics, want 1", place, got-before)
		}
		wantGeneration(t, r, "good", 1, 1)
		b.fails("")
	}
	if err := r.Load(t.Context(), "bad", "", nil); err != nil {
		t.Errorf("the load behind those that panicked: %v", err)
	}
	if _, err := generation(t, r, "bad", 1); err != nil {
		t.Error(err)
	}
	b.fails("Close")
	if err := r.Unload(t.Context(), "bad", false); err != nil {
		t.Error(err)
	}
	awaitUnloaded(t, r, "bad")
	b.fails("")
	if err := r.Load(t.Context(), "bad", "", nil); err != nil {
		t.Errorf("the load behind an unload that panicked: %v", err)
	}
	if _, err := generation(t, r, "bad", 1); err != nil {
		t.Error(err)
	}
}

// TestAPanicEndsItsOwnRequest checks for each scheduler that a panic of an instance or a client
// ends only its own request, and that no request stays in flight.
func TestAPanicEndsItsOwnRequest(t *testing.T) {
	for name, config := range map[string]string{
		"each by itself":   "",
		"batches":          "max_batch_size: 4 dynamic_batching { }",
		"ordered":          "max_batch_size: 4 dynamic_batching { preserve_ordering: true }",
		"direct sequences": "sequence_batching { direct { } }",
		"oldest sequences": "sequence_batching { oldest { max_candidate_sequences: 2 } }",
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBackend()
			root := writeModels(t, map[string][]int64{"m": {1}})
			rewrite(t, root+"/m/config.pbtxt", fakeConfig+config)
			r := startRegistry(t, root, b, nil)
			shape := []int64{1}
			if info, _ := r.Model("m", 1); info.Config.GetMaxBatchSize() > 0 {
				shape = []int64{1, 1}
			}
			ask := func(send infer.Sender) error {
				return r.Infer(t.Context(), &infer.Request{
					Model: "m", Version: 1, Correlation: infer.CorrelationID{Number: 7}, Flags: infer.SequenceStart | infer.SequenceEnd,
					Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: shape, Data: make([]byte, 4)}},
				}, send)
			}
			for range 3 {
				b.fails("Execute")
				var got *infer.Response
				if err := ask(func(response *infer.Response) { got = response }); err != nil {
					t.Fatal(err)
				}
				if got == nil || got.Err == nil || got.Err.Code != infer.Internal {
					t.Fatalf("got %+v from an instance that panics, want an INTERNAL error", got)
				}
				b.fails("")
				before := testkit.Panics()
				if err := ask(func(*infer.Response) { panic("a bug of a client's") }); err != nil {
					t.Fatal(err)
				}
				if n := testkit.Panics(); n != before+1 {
					t.Errorf("got %d panics of the client, want 1", n-before)
				}
				if err := ask(func(response *infer.Response) { got = response }); err != nil || got.Err != nil {
					t.Fatalf("the next request: got %+v, %v, want its answer", got, err)
				}
			}
			if n := len(r.InFlight()); n != 0 {
				t.Errorf("got %d versions with requests inside in the end, want none", n)
			}
		})
	}
}
