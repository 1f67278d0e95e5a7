package bls_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	contract "github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/examples/backends/bls"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

// TestConformance tests the backend with a host whose models respond, and without a host.
func TestConformance(t *testing.T) {
	const directory = "../../backend_models/bls_fp32"
	t.Run("answers", func(t *testing.T) {
		conformance.Run(t, bls.New, conformance.Model{Directory: directory, Host: calculator{}})
	})
	t.Run("no models", func(t *testing.T) {
		conformance.Run(t, bls.New, conformance.Model{Directory: directory})
	})
}

// calculator is a host with models that add and subtract.
type calculator struct{ contract.Host }

func (calculator) ModelReady(context.Context, string, int64) (bool, error) { return true, nil }

func (calculator) Target(string, int64) (contract.Target, error) {
	return &backendtest.Target{Run: calculate}, nil
}

func calculate(_ context.Context, r *infer.Request, send infer.Sender) error {
	a, b := r.Input("INPUT0"), r.Input("INPUT1")
	if a == nil || b == nil {
		return infer.Errorf(infer.InvalidArg, "an input is missing")
	}
	at := func(t *infer.Tensor, i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:]))
	}
	sum, difference := make([]byte, len(a.Data)), make([]byte, len(a.Data))
	for i := 0; i < len(sum); i += 4 {
		binary.LittleEndian.PutUint32(sum[i:], math.Float32bits(at(a, i)+at(b, i)))
		binary.LittleEndian.PutUint32(difference[i:], math.Float32bits(at(a, i)-at(b, i)))
	}
	send(&infer.Response{Final: true, Outputs: []infer.Tensor{
		{Name: "OUTPUT0", DataType: infer.FP32, Shape: a.Shape, Data: sum}, {Name: "OUTPUT1", DataType: infer.FP32, Shape: a.Shape, Data: difference},
	}})
	return nil
}
