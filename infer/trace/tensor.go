package trace

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Tensor is a tensor in a trace.
type Tensor struct {
	Name     string
	DataType string // "FP32", "BYTES"
	Shape    []int64
	Data     string // elements separated by commas, those of BYTES in quotation marks; "" for FP16 and BF16
}

func (t *Trace) WantsTensors() bool { return t != nil && t.tree.config.Tensors }

// Tensor records a tensor of the request, unless Memory has no room for its text.
func (t *Trace) Tensor(name Name, tensor, dataType string, shape []int64, data []byte) {
	if !t.WantsTensors() {
		return
	}
	tree := t.tree
	described := int64(entrySize + len(tensor) + 8*len(shape))
	most := copies * (described + int64(longest(dataType, len(data))))
	if !tree.take(most) {
		tree.mu.Lock()
		if t.recordingLocked() {
			tree.omitted++
		}
		tree.mu.Unlock()
		return
	}
	shown := &Tensor{Name: tensor, DataType: dataType, Shape: append([]int64(nil), shape...), Data: text(dataType, data)} // bound: taken above
	kept := copies * (described + int64(len(shown.Data)))
	tree.mu.Lock()
	if t.recordingLocked() {
		t.Entries = append(t.Entries, Entry{Name: name, Tensor: shown}) // bound: taken above
		tree.taken += kept
	} else {
		kept = 0
	}
	tree.mu.Unlock()
	tree.give(most - kept)
}

// copies is the largest number of copies of a text in memory: printed, in its entry, and as JSON.
const copies = 3

// entrySize bounds the size of an entry without its text, in memory or as JSON.
const entrySize = 64

const (
	// executionSize bounds the memory of an execution's entries, and their JSON.
	executionSize = 4 * copies * entrySize
	// traceSize bounds the memory of a request without its texts and executions.
	traceSize = 16 * entrySize
)

// sizes are the bytes of an element and of its longest text with a comma.
var sizes = map[string]struct{ element, text int }{
	"BOOL": {1, 4}, "UINT8": {1, 4}, "INT8": {1, 5}, "UINT16": {2, 6}, "INT16": {2, 7}, "UINT32": {4, 11}, "INT32": {4, 12},
	"UINT64": {8, 21}, "INT64": {8, 21}, "FP32": {4, 16}, "FP64": {8, 25},
}

// longest bounds the size of the text of n bytes of a tensor.
func longest(dataType string, n int) int {
	if dataType == "BYTES" {
		return n // a length is longer than two quotes and a comma
	}
	s := sizes[dataType]
	return n / max(s.element, 1) * s.text
}

// text formats the elements of a tensor.
func text(dataType string, data []byte) string {
	if dataType == "BYTES" {
		return texts(data)
	}
	size := sizes[dataType].element
	if size == 0 {
		return ""
	}
	b := make([]byte, 0, longest(dataType, len(data))) // bound: taken by Tensor
	for i := 0; i+size <= len(data); i += size {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendElement(b, dataType, data[i:])
	}
	return string(b) // bound: taken by Tensor
}

func appendElement(b []byte, dataType string, data []byte) []byte {
	le := binary.LittleEndian
	switch dataType {
	case "BOOL", "UINT8":
		return strconv.AppendUint(b, uint64(data[0]), 10)
	case "INT8":
		return strconv.AppendInt(b, int64(int8(data[0])), 10)
	case "UINT16":
		return strconv.AppendUint(b, uint64(le.Uint16(data)), 10)
	case "INT16":
		return strconv.AppendInt(b, int64(int16(le.Uint16(data))), 10)
	case "UINT32":
		return strconv.AppendUint(b, uint64(le.Uint32(data)), 10)
	case "INT32":
		return strconv.AppendInt(b, int64(int32(le.Uint32(data))), 10)
	case "UINT64":
		return strconv.AppendUint(b, le.Uint64(data), 10)
	case "INT64":
		return strconv.AppendInt(b, int64(le.Uint64(data)), 10)
	case "FP32":
		return strconv.AppendFloat(b, float64(math.Float32frombits(le.Uint32(data))), 'g', -1, 32)
	default: // FP64
		return strconv.AppendFloat(b, math.Float64frombits(le.Uint64(data)), 'g', -1, 64)
	}
}

// texts formats elements that have their own length. An incomplete element is left out.
func texts(data []byte) string {
	b := make([]byte, 0, len(data)) // bound: taken by Tensor
	for len(data) >= 4 {
		n := binary.LittleEndian.Uint32(data)
		if uint64(n) > uint64(len(data)-4) {
			break
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), data[4:4+n]...), '"')
		data = data[4+int(n):]
	}
	return string(b) // bound: taken by Tensor
}
