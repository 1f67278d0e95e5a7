package configs

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
)

// scripted is a backend whose instances return anything that a stub's frames can express: any shape
// and type that fit the bytes, any configured outputs in any number and order, errors and empty
// responses.
type scripted struct {
	pool *shm.Pool

	mu   sync.Mutex
	rand *rand.Rand
}

func (b *scripted) Open(env backend.Env) (backend.Model, error) {
	return &scriptedModel{backend: b, name: env.Name}, nil
}

type scriptedModel struct {
	backend   *scripted
	name      string
	config    *kserve.ModelConfig
	instances []backend.Instance
	running   sync.WaitGroup
}

func (m *scriptedModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (m *scriptedModel) Start(_ context.Context, config *kserve.ModelConfig, _ []byte, events backend.Events) error {
	m.config = config
	for _, group := range config.GetInstanceGroup() {
		for range max(group.GetCount(), 1) {
			in := &scriptedInstance{model: m, name: fmt.Sprintf("%s_%d", m.name, len(m.instances))}
			m.instances = append(m.instances, in)
			events.Available(in)
		}
	}
	return nil
}

func (m *scriptedModel) Instances() []backend.Instance { return m.instances }

func (*scriptedModel) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{}
}

func (m *scriptedModel) Close(context.Context) error {
	m.running.Wait()
	return nil
}

type scriptedInstance struct {
	model *scriptedModel
	name  string
}

func (in *scriptedInstance) Name() string                { return in.name }
func (in *scriptedInstance) Ready(context.Context) error { return nil }

func (*scriptedInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// Execute responds from a goroutine, like the reader of a stub's frames.
func (in *scriptedInstance) Execute(b *backend.Batch) {
	m := in.model
	m.running.Go(func() { in.answer(b) })
}

func (in *scriptedInstance) answer(b *backend.Batch) {
	m := in.model
	m.backend.mu.Lock()
	r := rand.New(rand.NewPCG(m.backend.rand.Uint64(), m.backend.rand.Uint64()))
	m.backend.mu.Unlock()
	begin := backend.Now()
	report := backend.Report{Start: begin, ComputeStart: begin, ComputeEnd: begin, End: begin, Executed: true}
	if chance(r, 40) {
		b.Done(b, backend.Report{Refused: true, Withdrawn: true})
		return
	}
	tasks := b.Tasks
	if chance(r, 20) {
		report.Rescheduled, tasks = tasks[:1], tasks[1:] // to be executed again
		if m.config.GetSequenceBatching() != nil && m.config.GetSequenceBatching().GetStrategyChoice() == nil {
			report.Rescheduled, tasks = nil, b.Tasks
		}
	}
	if report.Rescheduled == nil && chance(r, 20) {
		report.Err = infer.Errorf(infer.Internal, "the batch failed")
		b.Done(b, report)
		for _, task := range tasks {
			task.Send(infer.ErrorResponse(report.Err))
		}
		return
	}
	late := chance(r, 2) // call Done after the responses instead of before them
	if !late {
		b.Done(b, report)
	}
	for _, task := range tasks {
		if !m.config.GetModelTransactionPolicy().GetDecoupled() {
			task.Send(in.response(r, task.Request, true))
			continue
		}
		for range r.IntN(4) {
			task.Send(in.response(r, task.Request, false))
		}
		if chance(r, 2) {
			task.Send(&infer.Response{Empty: true, Final: true})
		} else {
			task.Send(in.response(r, task.Request, true))
		}
	}
	if late {
		b.Done(b, report)
	}
}

func (in *scriptedInstance) response(r *rand.Rand, req *infer.Request, final bool) *infer.Response {
	if chance(r, 12) {
		answer := infer.ErrorResponse(infer.Errorf(pick(r, infer.Internal, infer.InvalidArg, infer.Cancelled, infer.Unavailable), "as the model said"))
		answer.Final = final
		return answer
	}
	answer := &infer.Response{Final: final}
	if chance(r, 8) {
		answer.Parameters = []infer.Parameter{
			{Name: "sequence_id", Kind: infer.IntParameter, Int: r.Int64()}, {Name: "text", Kind: infer.StringParameter, String: "…"},
		}
	}
	config := in.model.config
	for _, out := range config.GetOutput() {
		if chance(r, 12) {
			continue
		}
		kind := infer.DataType(out.GetDataType())
		dims := out.GetDims()
		if out.GetReshape() != nil {
			dims = out.GetReshape().GetShape()
		}
		answer.Outputs = append(answer.Outputs, in.output(r, out.GetName(), kind, dims, req))
		if chance(r, 25) {
			answer.Outputs = append(answer.Outputs, in.output(r, out.GetName(), kind, dims, req))
		}
	}
	for _, state := range config.GetSequenceBatching().GetState() {
		if !chance(r, 8) {
			kind := infer.DataType(state.GetDataType())
			answer.Outputs = append(answer.Outputs, in.output(r, state.GetOutputName(), kind, state.GetDims(), req))
		}
	}
	return answer
}

// output creates an output. In two of three cases it matches the config. Otherwise its type and
// shape are random.
func (in *scriptedInstance) output(r *rand.Rand, name string, kind infer.DataType, dims []int64, req *infer.Request) infer.Tensor {
	t := infer.Tensor{Name: name, DataType: kind}
	if in.model.config.GetMaxBatchSize() > 0 {
		t.Shape = append(t.Shape, max(req.BatchSize, 1))
	}
	for _, d := range dims {
		if d < 0 {
			d = int64(r.IntN(4))
		}
		t.Shape = append(t.Shape, d)
	}
	if chance(r, 3) {
		t.DataType = pick(r, append([]infer.DataType{kind, kind, kind}, types...)...)
		t.Shape = make([]int64, r.IntN(5))
		for i := range t.Shape {
			t.Shape[i] = pick[int64](r, 0, 1, 1, 2, 3, 5)
		}
		if chance(r, 6) && len(t.Shape) > 1 { // with a factor of 0, the others may have any value
			t.Shape[0], t.Shape[1] = 0, pick[int64](r, 1<<31, 1<<62, math.MaxInt64)
			if chance(r, 2) {
				t.Shape[0], t.Shape[1] = t.Shape[1], t.Shape[0]
			}
		}
	}
	elements, ok := infer.Elements(t.Shape)
	if !ok || elements > 1<<16 {
		t.Shape, elements = []int64{0}, 0
	}
	data := make([]byte, elements*int64(max(t.DataType.Size(), 0)))
	if t.DataType == infer.Bytes {
		data = stringsOf(r, elements)
		if chance(r, 10) { // an invalid length, which only the reader detects
			data = data[:r.IntN(len(data)+1)]
		}
	} else {
		for i := range data {
			data[i] = byte(r.Uint32())
		}
	}
	t.Data = data
	if len(data) > 0 && chance(r, 2) {
		block, err := in.model.backend.pool.Alloc(len(data))
		if err == nil {
			copy(block.Bytes(), data)
			t.Data, t.Memory = block.Bytes(), block
		}
	}
	return t
}

func stringsOf(r *rand.Rand, n int64) (data []byte) {
	for range n {
		text := pick(r, "", "a", "\xff\xfe", "text", "ü")
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(text))), text...)
	}
	return data
}
