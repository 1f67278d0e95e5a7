package conformance

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// anySize is the number of elements if a config allows any number.
const anySize = 3

// countedMemory counts the references to an input's bytes; the suite has one.
type countedMemory struct{ references atomic.Int64 }

// Retain implements infer.Memory.
func (l *countedMemory) Retain() { l.references.Add(1) }

// Release implements infer.Memory.
func (l *countedMemory) Release() { l.references.Add(-1) }

// asked is a request of the suite.
type asked struct {
	request  *infer.Request
	memories []*countedMemory
	sum      uint64 // of all input bytes
}

// request creates request n; equal n give equal requests. free is the size of dimensions that may
// have any.
func (c *check) request(n int, free int64) *asked {
	r := &infer.Request{Model: c.config.Name, Version: c.version(), ID: fmt.Sprintf("request %d", n)}
	batching := c.config.MaxBatchSize > 0
	if batching {
		r.BatchSize = 1
	}
	if c.model.Inputs != nil && free == anySize {
		r.Inputs = slices.Clone(c.model.Inputs(n))
	} else {
		for at, input := range c.config.Input {
			r.Inputs = append(r.Inputs, tensor(input, batching, free, n+at))
		}
	}
	if c.config.GetSequenceBatching() != nil {
		c.sequence(r, n)
	}
	a := &asked{request: r}
	for i := range r.Inputs {
		l := &countedMemory{}
		l.references.Store(1)
		r.Inputs[i].Memory = l
		a.memories = append(a.memories, l)
	}
	a.sum = checksum(r.Inputs)
	return a
}

// version is the opened version. The suite needs no version directory; the backend may.
func (c *check) version() int64 { return 1 }

// tensor creates an input that conforms to its config.
func tensor(input *kserve.ModelInput, batching bool, free int64, n int) infer.Tensor {
	t := infer.Tensor{Name: input.Name, DataType: sdk.TypeOf(input.DataType)}
	dims := input.Dims
	if input.Reshape != nil {
		dims = input.Reshape.Shape
	}
	if batching {
		t.Shape = append(t.Shape, 1)
	}
	for _, d := range dims {
		if d < 0 {
			d = free
		}
		t.Shape = append(t.Shape, d)
	}
	elements, _ := infer.Elements(t.Shape) // a config has no dimensions that overflow
	t.Data = []byte{}
	for i := range int(elements) {
		t.Data = appendElement(t.Data, t.DataType, (n+i)%4)
	}
	return t
}

// appendElement adds a small number, or a short text.
func appendElement(data []byte, kind infer.DataType, n int) []byte {
	bits := uint64(n)
	switch {
	case kind == infer.Bytes:
		text := fmt.Sprintf("text %d", n)
		return append(binary.LittleEndian.AppendUint32(data, uint32(len(text))), text...)
	case kind.IsFloat():
		bits = kind.FloatBits(float64(n))
	case kind == infer.Bool:
		bits = uint64(n & 1)
	}
	var element [8]byte
	infer.PutBits(element[:], bits)
	return append(data, element[:kind.Size()]...)
}

// sequence turns the request into a whole sequence, with the control tensors that a server adds.
func (c *check) sequence(r *infer.Request, n int) {
	r.Correlation.Number = uint64(1000 + n)
	r.Flags = infer.SequenceStart | infer.SequenceEnd
	shape := []int64{1}
	if c.config.MaxBatchSize > 0 {
		shape = []int64{1, 1}
	}
	for _, input := range c.config.GetSequenceBatching().GetControlInput() {
		for _, control := range input.Control {
			t := infer.Tensor{Name: input.Name, Shape: shape}
			if control.Kind == kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
				t.DataType = sdk.TypeOf(control.DataType)
				if t.DataType == infer.Bytes {
					r.Correlation = infer.CorrelationID{Text: fmt.Sprintf("sequence %d", n)}
					t.Data = append(binary.LittleEndian.AppendUint32(nil, uint32(len(r.Correlation.Text))), r.Correlation.Text...)
				} else {
					t.Data = binary.LittleEndian.AppendUint64(nil, r.Correlation.Number)[:t.DataType.Size()]
				}
			} else { // START, END and READY are all true
				switch {
				case len(control.Int32FalseTrue) == 2:
					t.DataType, t.Data = infer.Int32, binary.LittleEndian.AppendUint32(nil, uint32(control.Int32FalseTrue[1]))
				case len(control.Fp32FalseTrue) == 2:
					t.DataType, t.Data = infer.FP32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(control.Fp32FalseTrue[1]))
				default:
					t.DataType, t.Data = infer.Bool, []byte{1}
				}
			}
			r.Inputs = append(r.Inputs, t)
		}
	}
}

func checksum(tensors []infer.Tensor) uint64 {
	h := fnv.New64a()
	for i := range tensors {
		_, _ = h.Write(tensors[i].Data) // it has no errors
	}
	return h.Sum64()
}
