package servertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server/clientshm"
)

// Model answers inferences. By default it returns each INPUTn as OUTPUTn.
type Model struct {
	Enters bool // Infer reports itself when a request has entered
	Info   *models.Info
	Labels string // content of the outputs' label file
	Infer  func(ctx context.Context, req *infer.Request, send infer.Sender) error

	Successor *Model // replaces this one when the first request is to run
	replaced  atomic.Bool
}

// NewModel returns a model whose config has these tensors: a name, a type and dims, such as "INPUT0
// FP32 4". Inputs and outputs are distinguished by name.
func NewModel(name string, maxBatch int32, tensors ...string) *Model {
	cfg := &kserve.ModelConfig{Name: name, Backend: "python", MaxBatchSize: maxBatch}
	for _, s := range tensors {
		f := strings.Fields(s)
		var dims []int64
		for _, d := range strings.Split(f[2], ",") {
			var n int64
			_, _ = fmt.Sscan(d, &n)
			dims = append(dims, n)
		}
		d := kserve.DataType(infer.ParseDataType(f[1]))
		if strings.HasPrefix(f[0], "IN") {
			cfg.Input = append(cfg.Input, &kserve.ModelInput{Name: f[0], DataType: d, Dims: dims, Optional: len(f) > 3})
		} else {
			cfg.Output = append(cfg.Output, &kserve.ModelOutput{Name: f[0], DataType: d, Dims: dims})
		}
	}
	return &Model{Info: &models.Info{Name: name, Version: 1, Config: cfg, JSON: []byte(`{"name":"` + name + `"}`)}}
}

// Echo returns each INPUTn as OUTPUTn.
func (m *Model) Echo(_ context.Context, req *infer.Request, send infer.Sender) error {
	cfg := m.Info.Config
	if req.Raw {
		in := cfg.Input[0]
		t := &req.Inputs[0]
		t.Name, t.DataType = in.Name, infer.DataType(in.DataType)
		t.Shape = []int64{int64(len(t.Data) / max(1, t.DataType.Size()))}
	}
	r := &infer.Response{Model: req.Model, Version: 1, ID: req.ID, Final: true}
	for _, name := range req.Outputs {
		if !slices.ContainsFunc(cfg.Output, func(o *kserve.ModelOutput) bool { return o.Name == name }) {
			return infer.Errorf(infer.InvalidArg, "unexpected inference output '%s' for model '%s'", name, req.Model)
		}
	}
	for _, out := range cfg.Output {
		in := req.Input(strings.Replace(out.Name, "OUTPUT", "INPUT", 1))
		if in == nil || len(req.Outputs) > 0 && !slices.Contains(req.Outputs, out.Name) {
			continue
		}
		t := *in
		t.Name = out.Name
		t.Retain()
		r.Outputs = append(r.Outputs, t)
	}
	send(r)
	return nil
}

// PutInPlace returns an Infer that writes n bytes of 7 to the place of OUTPUT0, as a backend may,
// and sends the output without them.
func PutInPlace(n int64) func(context.Context, *infer.Request, infer.Sender) error {
	return func(ctx context.Context, req *infer.Request, send infer.Sender) error {
		if len(req.Places) != 1 || req.Places[0].Output != "OUTPUT0" {
			return infer.Errorf(infer.Internal, "got places %v, want one of OUTPUT0", req.Places)
		}
		place := req.Places[0].Memory.(*clientshm.Slice)
		if err := place.Write(ctx, "OUTPUT0", bytes.Repeat([]byte{7}, int(n))); err != nil {
			return err
		}
		place.Retain()
		out := infer.Tensor{Name: "OUTPUT0", DataType: infer.Uint8, Shape: []int64{n}, Memory: &infer.Written{Foreign: place, Bytes: n}}
		send(&infer.Response{Model: req.Model, Version: 1, ID: req.ID, Final: true, Outputs: []infer.Tensor{out}})
		return nil
	}
}

// ReplacedModel returns a model whose labels change when its first request runs.
func ReplacedModel() *Model {
	old, new := NewModel("replaced", 8, "INPUT0 FP32 2", "OUTPUT0 FP32 2"), NewModel("replaced", 8, "INPUT0 FP32 2", "OUTPUT0 FP32 2")
	old.Info.Labels = map[string][]string{"OUTPUT0": {"old", "old"}}
	new.Info.Labels = map[string][]string{"OUTPUT0": {"new", "new"}}
	new.Infer = new.Echo
	old.Successor = new
	return old
}
