package version_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/rs/zerolog"
)

// answerer is a backend whose models respond with those of the outputs X and Y that are requested.
// Each holds the input and the number of executions. Input -1 gets an error response, -2 fails the
// execution, and 1000 or more gets that many bytes.
type answerer struct {
	executions atomic.Int64
	held       chan struct{} // if not nil, executions wait for it
}

func (a *answerer) Open(backend.Env) (backend.Model, error)              { return a, nil }
func (a *answerer) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }
func (a *answerer) Instances() []backend.Instance                        { return []backend.Instance{answererInstance{a}} }
func (a *answerer) Close(context.Context) error                          { return nil }
func (a *answerer) Name() string                                         { return "answerer" }
func (a *answerer) Ready(context.Context) error                          { return nil }
func (a *answerer) Start(_ context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	events.Available(answererInstance{a})
	return nil
}

func (a *answerer) Capabilities() backend.ModelCapabilities { return backend.ModelCapabilities{} }

type answererInstance struct{ *answerer }

func (answererInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (a answererInstance) Execute(b *backend.Batch) {
	go func() {
		n := a.executions.Add(1)
		if a.held != nil {
			<-a.held
		}
		now := backend.Now()
		report := backend.Report{Start: now, ComputeStart: now, ComputeEnd: now, End: now, Executed: true}
		responses := make([]*infer.Response, len(b.Tasks))
		for i, task := range b.Tasks {
			responses[i] = a.response(task.Request, n)
			if responses[i].Err != nil && responses[i].Err.Code == infer.Internal {
				report.Err = responses[i].Err
			}
		}
		b.Done(b, report)
		for i, task := range b.Tasks {
			task.Send(responses[i])
		}
	}()
}

func (a *answerer) response(r *infer.Request, n int64) *infer.Response {
	value := int32(binary.LittleEndian.Uint32(r.Inputs[0].Data))
	switch value {
	case -1:
		return infer.ErrorResponse(infer.Errorf(infer.InvalidArg, "bad one"))
	case -2:
		return infer.ErrorResponse(infer.Errorf(infer.Internal, "all bad"))
	}
	response := &infer.Response{Final: true, Parameters: []infer.Parameter{{Name: "execution", Kind: infer.IntParameter, Int: n}}}
	for _, name := range []string{"X", "Y"} {
		if len(r.Outputs) > 0 && !slices.Contains(r.Outputs, name) {
			continue
		}
		data := make([]byte, max(8, value-value%4))
		binary.LittleEndian.PutUint32(data, uint32(value))
		binary.LittleEndian.PutUint32(data[4:], uint32(n))
		response.Outputs = append(response.Outputs, infer.Tensor{Name: name, DataType: infer.Int32, Shape: []int64{int64(len(data) / 4)}, Data: data})
	}
	return response
}

const cachedConfig = `backend: "fake"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "X" data_type: TYPE_INT32 dims: [ -1, 1 ] reshape { shape: [ -1 ] } }, { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] } ]
response_cache { enable: true }
`

// cached loads a model whose responses are cached. The cache has size bytes; with 0, the server has
// none.
func cached(t *testing.T, a *answerer, size int64, log *strings.Builder) (*shelf, *version.Version) {
	t.Helper()
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/config.pbtxt": cachedConfig, "m/1/keep": ""})
	s := newShelf(t, root, a, func(c *version.Settings) {
		if size > 0 {
			var err error
			if c.Cache, err = cache.New(cache.Config{Size: size}); err != nil {
				t.Fatal(err)
			}
		}
		if log != nil {
			c.Log = zerolog.New(zerolog.SyncWriter(log))
		}
	})
	return s, s.mustLoad("m")
}

// valueRequest returns a request with this input.
func valueRequest(value int32, outputs ...string) *infer.Request {
	data := binary.LittleEndian.AppendUint32(nil, uint32(value))
	return &infer.Request{
		Model: "m", Version: infer.LatestVersion, ID: fmt.Sprint("id of ", value), Outputs: outputs,
		Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: data}},
	}
}

// answered sends a request and describes the response: "X=3@1" is output X with value 3 from the
// first execution.
func answered(t *testing.T, by func(context.Context, *infer.Request, infer.Sender) error, r *infer.Request) string {
	t.Helper()
	var parts []string
	done := make(chan struct{})
	err := by(t.Context(), r, func(response *infer.Response) {
		defer close(done)
		if response.Model != "m" || response.Version != 1 || response.ID != r.ID || !response.Final {
			t.Errorf("got response of %s:%d with id %q, final %v", response.Model, response.Version, response.ID, response.Final)
		}
		if response.Err != nil {
			parts = append(parts, response.Err.Message)
			return
		}
		for _, o := range response.Outputs {
			if want := map[string]int{"X": 2, "Y": 1}[o.Name]; len(o.Shape) != want {
				t.Errorf("output %s has shape %v, want rank %d", o.Name, o.Shape, want)
			}
			made := binary.LittleEndian.Uint32(o.Data[4:])
			if p := response.Parameters; len(p) != 1 || p[0].Int != int64(made) {
				t.Errorf("parameters are %v, want those of execution %d", p, made)
			}
			parts = append(parts, fmt.Sprintf("%s=%d@%d", o.Name, int32(binary.LittleEndian.Uint32(o.Data)), made))
		}
	})
	if err != nil {
		return err.Error()
	}
	<-done
	return strings.Join(parts, " ")
}

// client is foreign memory with the bytes of a value. If the value is 0, copying it fails.
type client struct{ value int32 }

func (c *client) Retain()     {}
func (c *client) Release()    {}
func (c *client) Size() int64 { return 4 }

func (c *client) Copy(context.Context) ([]byte, infer.Memory, error) {
	if c.value == 0 {
		return nil, nil, infer.Errorf(infer.InvalidArg, "the bytes have vanished")
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(c.value)), nil, nil
}

// TestForeignInputsAreCopiedAtTheDoor checks that an input in foreign memory is copied before the
// cache and the instance read it, and that a request whose memory has vanished is rejected without
// being counted.
func TestForeignInputsAreCopiedAtTheDoor(t *testing.T) {
	_, v := cached(t, &answerer{}, 4000, nil)
	foreign := func(value int32) *infer.Request {
		request := valueRequest(value)
		request.Inputs[0].Data, request.Inputs[0].Memory = nil, &client{value}
		return request
	}
	for _, step := range []struct {
		request *infer.Request
		want    string
	}{
		{foreign(3), "X=3@1 Y=3@1"},
		{valueRequest(3), "X=3@1 Y=3@1"}, // the same bytes on the heap have the same key
		{foreign(4), "X=4@2 Y=4@2"},
		{foreign(0), "the bytes have vanished"},
	} {
		if got := answered(t, v.Infer, step.request); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	if got, want := counts(v), "inferences 2 executions 2 success 3 fail 0 queue 3 compute 2 hit 1 miss 2"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// counts returns the counts of a version's statistics as text.
func counts(v *version.Version) string {
	all, n := v.Statistics(), func(d *kserve.StatisticDuration) uint64 { return d.GetCount() }
	s := all.GetInferenceStats()
	return fmt.Sprintf("inferences %d executions %d success %d fail %d queue %d compute %d hit %d miss %d", all.GetInferenceCount(),
		all.GetExecutionCount(), n(s.GetSuccess()), n(s.GetFail()), n(s.GetQueue()), n(s.GetComputeInfer()), n(s.GetCacheHit()), n(s.GetCacheMiss()))
}

// TestCachedModelAnswersFromItsCache sends a series of requests to a model with a cache and checks
// the response and the statistics after each.
func TestCachedModelAnswersFromItsCache(t *testing.T) {
	a := &answerer{}
	var log strings.Builder
	_, v := cached(t, a, 4000, &log)
	for _, step := range []struct {
		name   string
		value  int32
		asked  []string
		want   string
		counts string
	}{
		{"a miss", 3, nil, "X=3@1 Y=3@1", "inferences 1 executions 1 success 1 fail 0 queue 1 compute 1 hit 0 miss 1"},
		{"a hit", 3, nil, "X=3@1 Y=3@1", "inferences 1 executions 1 success 2 fail 0 queue 2 compute 1 hit 1 miss 1"},
		{"one output of all", 3, []string{"Y"}, "Y=3@1", "inferences 1 executions 1 success 3 fail 0 queue 3 compute 1 hit 2 miss 1"},
		{"one output alone", 4, []string{"Y"}, "Y=4@2", "inferences 2 executions 2 success 4 fail 0 queue 4 compute 2 hit 2 miss 2"},
		{"all where one is known", 4, nil, "X=4@3 Y=4@3", "inferences 3 executions 3 success 5 fail 0 queue 5 compute 3 hit 2 miss 3"},
		// As in Triton, a request that the model answers with an error counts as a success.
		{"an error", -1, nil, "bad one", "inferences 4 executions 4 success 6 fail 0 queue 6 compute 4 hit 2 miss 4"},
		{"an error is not kept", -1, nil, "bad one", "inferences 5 executions 5 success 7 fail 0 queue 7 compute 5 hit 2 miss 5"},
		{"a failure", -2, nil, "all bad", "inferences 5 executions 6 success 7 fail 1 queue 7 compute 5 hit 2 miss 6"},
		{"too large", 8000, nil, "X=8000@7 Y=8000@7", "inferences 6 executions 7 success 8 fail 1 queue 8 compute 6 hit 2 miss 7"},
		{"too large again", 8000, nil, "X=8000@8 Y=8000@8", "inferences 7 executions 8 success 9 fail 1 queue 9 compute 7 hit 2 miss 8"},
		{"known outputs", 3, []string{"Z"}, "unexpected inference output 'Z' for model 'm'",
			"inferences 7 executions 8 success 9 fail 1 queue 9 compute 7 hit 2 miss 8"},
	} {
		if got := answered(t, v.Infer, valueRequest(step.value, step.asked...)); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
		if got := counts(v); got != step.counts {
			t.Errorf("%s: got %q, want %q", step.name, got, step.counts)
		}
	}
	h, _ := v.Hold()
	defer h.Release()
	if got := answered(t, h.Submit, valueRequest(3)); got != "X=3@1 Y=3@1" {
		t.Errorf("a model that calls: got %q, want a hit", got)
	}
	const refusal = "Failed to insert a response of model 'm' into response cache: Requested byte_size: "
	if n := strings.Count(log.String(), refusal); n != 1 {
		t.Errorf("the log has %d lines of responses that are too large, want 1:\n%s", n, log.String())
	}
}

// TestCachedMissesAtOnce checks that of two concurrent responses to equal requests only the first
// is cached and counts as a miss.
func TestCachedMissesAtOnce(t *testing.T) {
	a := &answerer{held: make(chan struct{})}
	_, v := cached(t, a, 4000, nil)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { answered(t, v.Infer, valueRequest(3)) })
	}
	testkit.Eventually(t, patience, func() bool { return v.InFlight() == 2 })
	a.held <- struct{}{}
	a.held <- struct{}{}
	all.Wait()
	if got, want := counts(v), "inferences 2 executions 2 success 2 fail 0 queue 2 compute 2 hit 0 miss 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCachedEndsWithTheLoad(t *testing.T) {
	a := &answerer{}
	s, v := cached(t, a, 4000, nil)
	answered(t, v.Infer, valueRequest(3))
	s.close("m")
	v = s.mustLoad("m")
	if got, want := answered(t, v.Infer, valueRequest(3)), "X=3@2 Y=3@2"; got != want {
		t.Errorf("got %q of the model that was loaded anew, want %q", got, want)
	}
	if got, want := counts(v), "inferences 1 executions 1 success 1 fail 0 queue 1 compute 1 hit 0 miss 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.close("m")
	if left := s.settings.Cache.Stats(); left.Used != 0 {
		t.Errorf("%d bytes are left when all is unloaded", left.Used)
	}
}

func TestCachedNeedsTheServersCache(t *testing.T) {
	a := &answerer{}
	_, v := cached(t, a, 0, nil)
	for n := range 2 {
		if got, want := answered(t, v.Infer, valueRequest(3)), fmt.Sprintf("X=3@%d Y=3@%d", n+1, n+1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := counts(v), "inferences 2 executions 2 success 2 fail 0 queue 2 compute 2 hit 0 miss 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
