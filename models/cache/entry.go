package cache

import (
	"container/list"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// entry is one response. It is immutable except for its position, which Cache.mu guards.
type entry struct {
	question   question
	space      *Space
	outputs    []infer.Tensor // Data and Shape are the entry's own
	parameters []infer.Parameter
	size       int64

	position *list.Element // in Cache.order
}

// entryBytes is the weight of an entry beside names, shapes and bytes: its own fields, its tensors'
// and its position in a map.
const entryBytes = 256

// sizeOf returns the weight of an entry with these outputs.
func sizeOf(outputs []infer.Tensor, parameters []infer.Parameter) int64 {
	size := int64(entryBytes)
	for i := range outputs {
		t := &outputs[i]
		size += 64 + int64(len(t.Name)) + 8*int64(len(t.Shape)) + int64(len(t.Data))
	}
	for i := range parameters {
		size += 64 + int64(len(parameters[i].Name)) + int64(len(parameters[i].String))
	}
	return size
}

// has reports whether the entry has all these outputs.
func (e *entry) has(wanted []string) bool {
	for _, name := range wanted {
		if !slices.ContainsFunc(e.outputs, func(t infer.Tensor) bool { return t.Name == name }) {
			return false
		}
	}
	return true
}

// response makes a response with the wanted outputs, all if none is named. It holds a reference to
// each.
//
// bound: the entry's outputs
func (e *entry) response(wanted []string) *infer.Response {
	r := &infer.Response{Parameters: e.parameters, Final: true, Outputs: make([]infer.Tensor, 0, len(e.outputs))}
	for i := range e.outputs {
		t := &e.outputs[i]
		if len(wanted) > 0 && !slices.Contains(wanted, t.Name) {
			continue
		}
		t.Retain()
		r.Outputs = append(r.Outputs, *t)
	}
	return r
}

// release drops the entry's own references.
func (e *entry) release() {
	for i := range e.outputs {
		e.outputs[i].Release()
	}
}

// copyOf makes an entry's outputs: large ones in memory from allocate, if possible, the others
// together on the Go heap.
//
// bound: sizeOf, which the caller has reserved
func copyOf(outputs []infer.Tensor, allocate Allocator) []infer.Tensor {
	small, dims := 0, 0
	copies := make([]infer.Tensor, len(outputs))
	for i := range outputs {
		t := &outputs[i]
		copies[i] = infer.Tensor{Name: t.Name, DataType: t.DataType}
		dims += len(t.Shape)
		if len(t.Data) >= blockBytes && allocate != nil {
			if data, memory, err := allocate(len(t.Data)); err == nil {
				copies[i].Data, copies[i].Memory = data, memory
				copy(data, t.Data)
				continue
			}
		}
		small += len(t.Data)
	}
	bytes, shapes := make([]byte, 0, small), make([]int64, 0, dims)
	for i := range outputs {
		from := len(shapes)
		shapes = append(shapes, outputs[i].Shape...)
		copies[i].Shape = shapes[from:len(shapes):len(shapes)]
		if copies[i].Memory != nil {
			continue
		}
		from = len(bytes)
		bytes = append(bytes, outputs[i].Data...)
		copies[i].Data = bytes[from:len(bytes):len(bytes)]
	}
	return copies
}
