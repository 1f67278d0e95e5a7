package sequence_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// echo is an instance that responds before Execute returns, with a state in its own memory.
type echo struct{ state []byte }

func (*echo) Name() string                { return "echo" }
func (*echo) Ready(context.Context) error { return nil }

func (*echo) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (e *echo) Execute(b *backend.Batch) {
	b.Done(b, backend.Report{Executed: true})
	for _, task := range b.Tasks {
		r := &infer.Response{Final: true}
		if e.state != nil {
			r.Outputs = []infer.Tensor{{Name: "OUT", DataType: infer.FP32, Shape: []int64{int64(len(e.state) / 4)}, Data: e.state}}
		}
		task.Send(r)
	}
}

// BenchmarkSequences sends requests to 10,000 live sequences in turn. It measures the cost of a
// request and the memory of a sequence.
func BenchmarkSequences(b *testing.B) {
	const live = 10_000
	for _, c := range []struct {
		name   string
		config sequence.Config
		state  int // bytes
	}{
		{"direct", direct(live, 0, 0), 0},
		{"direct, 64 B of state", direct(live, 0, 0), 64},
		{"oldest", oldest(8, live, 0), 0},
		{"oldest, 64 B of state", oldest(8, live, 0), 64},
		{"backlog", oldest(1, 1, 0), 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			config := c.config
			config.Model, config.Observer = "m", &tally{}
			config.Batching.MaxSequenceIdleMicroseconds = 1 << 40
			config.Batching.ControlInput = []*kserve.ModelSequenceBatching_ControlInput{
				{Name: "START", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START, Int32FalseTrue: []int32{0, 1}}}},
				{Name: "CORRID", Control: []*kserve.ModelSequenceBatching_Control{{Kind: kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID, DataType: kserve.DataType_TYPE_UINT64}}},
			}
			in := &echo{}
			if c.state > 0 {
				in.state = make([]byte, c.state)
				config.States = []sequence.State{{Input: "IN", Output: "OUT", DataType: infer.FP32, Shape: []int64{int64(c.state / 4)}, Data: make([]byte, c.state)}}
			}
			if c.name == "direct" || c.state > 0 && config.Batching.GetOldest() == nil {
				config.MaxBatch = 8 // slots of each of 1,250 instances
			}
			s := sequence.New(config)
			for range max(1, live/8*boolToInt(config.Batching.GetOldest() == nil)) {
				s.Available(&echo{state: in.state})
			}
			send := func(n int, flags uint32) {
				req := &infer.Request{Correlation: infer.CorrelationID{Number: uint64(n + 1)}, Flags: flags, Inputs: []infer.Tensor{{Name: "X"}}}
				if err := s.Submit(context.Background(), req, func(*infer.Response) {}); err != nil {
					b.Fatal(err)
				}
			}
			before := testkit.LiveHeap()
			for n := range live {
				send(n, infer.SequenceStart)
			}
			per := float64(testkit.LiveHeap()-before) / live
			if c.name == "backlog" {
				// Nothing else is executed: this measures only queued requests.
				b.ReportMetric(per, "B/sequence")
				return
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				send(n%live, 0)
				n++
			}
			b.ReportMetric(per, "B/sequence")
			runtime.KeepAlive(s)
		})
	}
}

// TestIdleSequencesCostLittle checks the limit on the memory of an idle sequence, and that it has
// no goroutine.
func TestIdleSequencesCostLittle(t *testing.T) {
	const live, most = 10_000, 800
	config := oldest(8, live, 0)
	config.Model, config.Observer = "m", &tally{}
	config.Batching.MaxSequenceIdleMicroseconds = 1 << 40
	s := sequence.New(config)
	s.Available(&echo{})
	before, goroutines := testkit.LiveHeap(), runtime.NumGoroutine()
	for n := range live {
		req := &infer.Request{ID: fmt.Sprint(n), Correlation: infer.CorrelationID{Number: uint64(n + 1)}, Flags: infer.SequenceStart}
		if err := s.Submit(t.Context(), req, func(*infer.Response) {}); err != nil {
			t.Fatal(err)
		}
	}
	if per := (testkit.LiveHeap() - before) / live; per > most {
		t.Errorf("a live sequence takes %d bytes, want at most %d", per, most)
	}
	if n := runtime.NumGoroutine(); n > goroutines+5 {
		t.Errorf("%d goroutines with %d sequences, %d without", n, live, goroutines)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
