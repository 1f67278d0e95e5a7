package stacked

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// FuzzRoundTrip merges a batch and splits its echo. It checks that each request gets its own inputs
// back, whatever their shapes, and that no memory is left.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{2, 0, 1, 2, 3, 1, 1, 1, 9, 9, 9})
	f.Add([]byte{3, 1, 2, 1, 4, 1, 3, 2, 1, 0, 5, 7, 7, 7})
	f.Add([]byte{5, 2, 1, 1, 1, 2, 0, 3, 3, 1, 2, 1, 1, 4, 2, 6})
	f.Add([]byte{1, 5, 1, 1, 1, 2, 0})
	f.Add([]byte("\x00\x04000000000"))
	f.Fuzz(func(t *testing.T, script []byte) {
		next := func(below int) int {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return int(b) % below
		}
		n, way, wide := 1+next(6), next(3), next(2) == 1
		const tensors = `
input { name: "N" data_type: TYPE_INT32 dims: [ -1, -1 ] %[1]s }
input { name: "S" data_type: TYPE_STRING dims: [ -1 ] %[1]s }
output { name: "N_OUT" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "S_OUT" data_type: TYPE_STRING dims: [ -1 ] }
`
		const scatter = `
batch_output { target_name: "N_OUT" source_input: "N" }
batch_output { target_name: "S_OUT" source_input: "S" }
batch_input { kind: BATCH_ITEM_SHAPE target_name: "SHAPES" data_type: TYPE_INT32 source_input: "N" }
`
		config := [...]string{
			fmt.Sprintf(tensors, ""),
			fmt.Sprintf(tensors, "allow_ragged_batch: true") + scatter,
			fmt.Sprintf(tensors, "allow_ragged_batch: true") + scatter + `parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`,
		}[way]
		r := newFixture(t, config, nil)
		r.model.execute = echo(&r.ledger, map[string]string{"N": "N_OUT", "S": "S_OUT"})
		requests := make([]*infer.Request, n)
		var first []int64
		for i := range requests {
			rows := int64(next(4))
			item := []int64{int64(next(5)), int64(next(4)), int64(next(6))}
			if wide {
				item[1] *= 700 // too large for the heap
			}
			if first == nil || way != 0 {
				first = item
			}
			item = first
			a := infer.Tensor{Name: "N", DataType: infer.Int32, Shape: dims(rows, item[0], item[1])}
			for range rows * item[0] * item[1] {
				a.Data = binary.LittleEndian.AppendUint32(a.Data, uint32(next(256)))
			}
			words := make([]string, rows*item[2])
			for j := range words {
				words[j] = fmt.Sprintf("%.*s", next(9), "abcdefgh")
			}
			requests[i] = request(a, texts("S", dims(rows, item[2]), words...))
		}
		b := r.run(requests...)
		for i, a := range b.tasks {
			if len(a.responses) != 1 || a.responses[0].Err != nil {
				t.Fatalf("task %d: %+v", i, a.responses[0].Err)
			}
			want := slices.Clone(requests[i].Inputs)
			for j := range want {
				want[j].Name += "_OUT"
			}
			if got := a.responses[0].Outputs; !sameTensors(got, want) {
				t.Fatalf("task %d: got  %+v\nwant %+v", i, got, want)
			}
		}
		r.release(b)
	})
}

// FuzzSplit splits arbitrary outputs. It checks that no byte outside them is read and that no
// memory is left.
func FuzzSplit(f *testing.F) {
	f.Add(int64(2), int64(2), uint8(13), testkit.TensorData("a", "b", "c", "d"))
	f.Add(int64(2), int64(2), uint8(13), []byte{1, 0, 0, 0, 'a', 255, 255, 255, 255})
	f.Add(int64(3), int64(-1), uint8(8), testkit.TensorData[int32](1, 2, 3))
	f.Add(int64(3), int64(1)<<62, uint8(1), []byte{1, 2})
	f.Add(int64(3), int64(1)<<62, uint8(14), []byte{1})
	f.Add(int64(3), int64(2), uint8(8), testkit.TensorData[int32](1, 2, 3))
	f.Add(int64(3), int64(2), uint8(13), testkit.TensorData("a", "b", "c"))
	f.Fuzz(func(t *testing.T, rows, width int64, dataType uint8, data []byte) {
		d := infer.DataType(dataType)
		if !d.Valid() {
			return
		}
		for _, scattered := range []bool{false, true} {
			config := `input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true } output { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }
				parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`
			if scattered {
				config += `batch_output { target_name: "Y" source_input: "X" }`
			}
			r := newFixture(t, config, nil)
			b := r.run(request(ints("X", dims(1, 2), 1, 2)), request(ints("X", dims(2, 1), 3, 4)))
			r.model.open[0].Send(&infer.Response{Final: true, Outputs: []infer.Tensor{
				{Name: "Y", DataType: d, Shape: dims(rows, width), Data: data, Memory: r.ledger.lend("Y")},
			}})
			for _, a := range b.tasks {
				for _, out := range a.responses[0].Outputs {
					if size, ok := infer.ByteSize(d, out.Shape); d != infer.Bytes && (!ok || size != int64(len(out.Data))) {
						t.Errorf("%s%v has %d bytes", d, out.Shape, len(out.Data))
					}
				}
			}
			r.release(b)
		}
	})
}

// echo returns a function that responds with the inputs, renamed by names, in memory of a ledger.
func echo(l *ledger, names map[string]string) func(*infer.Request) *infer.Response {
	return func(r *infer.Request) *infer.Response {
		response := &infer.Response{Final: true}
		for _, in := range r.Inputs {
			if name, ok := names[in.Name]; ok {
				out := in
				out.Name, out.Data, out.Memory = name, bytes.Clone(in.Data), l.lend("output "+name)
				response.Outputs = append(response.Outputs, out)
			}
		}
		return response
	}
}
