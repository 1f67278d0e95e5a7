package stacked

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// worker is an instance with its own goroutine, which doubles numbers and is lost now and then. A
// batch given before a loss may arrive after it, in addition to the next one. As a stub, it has
// room for both.
type worker struct {
	name   string
	ledger *ledger
	events backend.Events

	mu   sync.Mutex
	up   bool
	work chan *backend.Batch // one batch and a late one; closed at the end of the test
}

func (w *worker) Name() string                { return w.name }
func (w *worker) Ready(context.Context) error { return nil }
func (w *worker) Cancel(*backend.Task)        {}

func (w *worker) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: w}
}

func (w *worker) Execute(b *backend.Batch) {
	if !w.take(b) {
		b.Done(b, backend.Report{Refused: true})
	}
}

func (w *worker) take(b *backend.Batch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.up {
		return false
	}
	select {
	case w.work <- b:
		return true
	default:
		return false
	}
}

func (w *worker) run(random *rand.Rand) {
	w.set(true)
	w.events.Available(w)
	for b := range w.work {
		in := b.Tasks[0].Request.Inputs[0]
		data := bytes.Clone(in.Data)
		for i := 0; i < len(data); i += 4 {
			binary.LittleEndian.PutUint32(data[i:], 2*binary.LittleEndian.Uint32(data[i:]))
		}
		lost := random.IntN(8) == 0
		if lost {
			w.set(false)
		}
		b.Done(b, backend.Report{Executed: true})
		answer := &infer.Response{Final: true, Outputs: []infer.Tensor{
			{Name: "Y", DataType: in.DataType, Shape: slices.Clone(in.Shape), Data: data, Memory: w.ledger.lend("Y")},
		}}
		if random.IntN(16) == 0 {
			answer.Release()
			answer = infer.ErrorResponse(infer.Errorf(infer.Internal, "as it happens"))
		}
		b.Tasks[0].Send(answer)
		if lost {
			w.events.Lost(w, false)
			w.set(true)
			w.events.Available(w)
		}
	}
}

func (w *worker) set(up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = up
}

// executedCounter is an Observer that counts executed requests.
type executedCounter struct{ executed atomic.Int64 }

func (*executedCounter) Pending(int)                       {}
func (o *executedCounter) Executed(e *scheduler.Execution) { o.executed.Add(int64(len(e.Requests))) }
func (*executedCounter) Failed(scheduler.Reason, int64)    {}

// TestStormGivesEachClientItsRows sends requests of many clients, some of which leave, while
// instances come and go. It checks that each client that stays gets its own rows and that no memory
// is left.
func TestStormGivesEachClientItsRows(t *testing.T) {
	config := ConfigOf(t, stackedConfig+`
input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }
batch_output { target_name: "Y" source_input: "X" }`)
	config.MaxBatchSize = 16
	config.GetDynamicBatching().PreferredBatchSize = []int32{8}
	config.GetDynamicBatching().MaxQueueDelayMicroseconds = 200
	plan, err := NewPlan(config)
	if err != nil {
		t.Fatal(err)
	}
	var memory ledger
	observer := &executedCounter{}
	batcher := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: observer, Batching: batching.NewRules(config)})
	events := NewEvents(plan, memory.allocate, nil, batcher)
	var workers, clients sync.WaitGroup
	var all []*worker
	for i := range 3 {
		w := &worker{name: string(rune('a' + i)), ledger: &memory, events: events, work: make(chan *backend.Batch, 2)}
		all = append(all, w)
		workers.Go(func() { w.run(rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	var answered atomic.Int64
	for c := range 32 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(c)))
			for range 40 {
				rows, width := 1+random.Int64N(3), 1+random.Int64N(40)
				if random.IntN(100) == 0 {
					width *= 4000 // some of these are merged in another goroutine
				}
				values := make([]int32, rows*width)
				for i := range values {
					values[i] = int32(random.Uint32() >> 2)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(5) == 0 {
					cancel()
				}
				err := batcher.Infer(ctx, request(ints("X", dims(rows, width), values...)), func(r *infer.Response) {
					defer r.Release()
					if r.Err != nil {
						if r.Err.Code != infer.Cancelled && r.Err.Message != "as it happens" {
							t.Errorf("got %v", r.Err)
						}
						return
					}
					for i := range values {
						values[i] *= 2
					}
					answered.Add(1)
					if want := []infer.Tensor{ints("Y", dims(rows, width), values...)}; !sameTensors(r.Outputs, want) {
						t.Error("a client got what is not its own")
					}
				})
				if err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	clients.Wait()
	if err := batcher.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, w := range all {
		close(w.work)
	}
	workers.Wait()
	memory.check(t)
	if answered.Load() < 32*15 {
		t.Errorf("only %d of %d requests were answered", answered.Load(), 32*40)
	}
}
