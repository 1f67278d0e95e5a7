package models

import (
	"context"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// faultyBackend opens models of a fakeBackend that panic at one chosen place.
type faultyBackend struct {
	*fakeBackend
	mu    sync.Mutex
	place string // if "", nothing panics
}

func (b *faultyBackend) set(place string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.place = place
}

func (b *faultyBackend) at(place string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.place == place {
		panic("a bug at " + place)
	}
}

func (b *faultyBackend) Open(env backend.Env) (backend.Model, error) {
	b.at("open")
	m, err := b.fakeBackend.Open(env)
	if err != nil {
		return nil, err
	}
	return &faultyModel{m.(*fakeModel), b}, nil
}

type faultyModel struct {
	*fakeModel
	backend *faultyBackend
}

func (m *faultyModel) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	m.backend.at("start")
	return m.fakeModel.Start(ctx, config, json, faultyEvents{events, m.backend})
}

func (m *faultyModel) Close(ctx context.Context) error {
	defer m.backend.at("close")
	return m.fakeModel.Close(ctx)
}

// faultyEvents passes on instances that can panic instead of executing.
type faultyEvents struct {
	backend.Events
	backend *faultyBackend
}

func (e faultyEvents) Available(in backend.Instance) {
	e.Events.Available(&faultyInstance{in.(*fakeInstance), e.backend})
}

type faultyInstance struct {
	*fakeInstance
	backend *faultyBackend
}

func (*faultyInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (in *faultyInstance) Execute(b *backend.Batch) {
	in.backend.at("execute")
	in.fakeInstance.Execute(b)
}

// TestAPanicEndsItsOwnLoad checks that a panic fails only its own load, that other models still
// serve, and that the model loads and unloads once the bug is gone.
func TestAPanicEndsItsOwnLoad(t *testing.T) {
	b := &faultyBackend{fakeBackend: NewFakeBackend()}
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"good": {1}, "bad": {1}}), b, Explicit("good"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"open", "start"} {
		before := testkit.Panics()
		b.set(place)
		WantError(t, r.Load(t.Context(), "bad", "", nil), infer.InvalidArg,
			"load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: internal error;\n")
		if got := testkit.Panics(); got != before+1 {
			t.Errorf("%s: got %d panics, want 1", place, got-before)
		}
		wantGeneration(t, r, "good", 1, 1)
		b.set("")
	}
	if err := r.Load(t.Context(), "bad", "", nil); err != nil {
		t.Errorf("the load behind those that panicked: %v", err)
	}
	if _, err := generation(t, r, "bad", 1); err != nil {
		t.Error(err)
	}
	b.set("close")
	if err := r.Unload(t.Context(), "bad", false); err != nil {
		t.Error(err)
	}
	r.ending.Wait()
	b.set("")
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
			b := &faultyBackend{fakeBackend: NewFakeBackend()}
			root := WriteModels(t, map[string][]int64{"m": {1}})
			Rewrite(t, root+"/m/config.pbtxt", FakeConfig+config)
			r := NewTestRegistry(t, root, b, nil)
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
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
				b.set("execute")
				var got *infer.Response
				if err := ask(func(response *infer.Response) { got = response }); err != nil {
					t.Fatal(err)
				}
				if got == nil || got.Err == nil || got.Err.Code != infer.Internal {
					t.Fatalf("got %+v from an instance that panics, want an INTERNAL error", got)
				}
				b.set("")
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
