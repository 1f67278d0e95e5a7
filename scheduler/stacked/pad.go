package stacked

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// pad extends every item to the largest extent in each dimension.
func (g *group) pad(parts []*infer.Tensor, out *infer.Tensor) error {
	shape := make([]int64, len(parts[0].Shape)) // bound: the rank of a tensor
	shape[0] = g.total
	for _, t := range parts {
		for i, d := range t.Shape[1:] {
			shape[i+1] = max(shape[i+1], d)
		}
	}
	elements, ok := infer.Elements(shape)
	if !ok {
		return g.fault("input '%s' would have shape %s when it is padded", out.Name, infer.ShapeString(shape))
	}
	out.Shape = shape
	if g.padded == nil {
		g.padded = make(map[string][]int64)
	}
	g.padded[out.Name] = shape // bound: the inputs of the model
	fill := g.instance.plan.inputs[out.Name].pad
	if out.DataType == infer.Bytes {
		return g.padStrings(parts, out, elements, fill)
	}
	size, ok := infer.ByteSize(out.DataType, shape)
	if !ok {
		return g.fault("input '%s' would have shape %s when it is padded", out.Name, infer.ShapeString(shape))
	}
	var err error
	if out.Data, out.Memory, err = g.memoryOf(size); err != nil {
		return err
	}
	rest, width := out.Data, int64(out.DataType.Size())
	for _, t := range parts {
		from := t.Data
		for range t.Shape[0] {
			eachRun(shape[1:], t.Shape[1:], func(inside bool, n int64) {
				to := rest[:n*width]
				rest = rest[n*width:]
				if inside {
					from = from[copy(to, from):]
				} else {
					repeat(to, fill)
				}
			})
		}
	}
	return nil
}

// padStrings is pad for strings.
func (g *group) padStrings(parts []*infer.Tensor, out *infer.Tensor, elements int64, fill []byte) error {
	if fill == nil {
		fill = make([]byte, 4) // an empty string
	}
	size, missing := int64(0), elements
	for _, t := range parts {
		n, _ := infer.Elements(t.Shape)
		missing -= n
		size += int64(len(t.Data))
	}
	if missing > (math.MaxInt64-size)/int64(len(fill)) {
		return g.fault("input '%s' would have shape %s when it is padded", out.Name, infer.ShapeString(out.Shape))
	}
	var err error
	if out.Data, out.Memory, err = g.memoryOf(size + missing*int64(len(fill))); err != nil {
		return err
	}
	rest := out.Data
	for _, t := range parts {
		from := t.Data
		for range t.Shape[0] {
			eachRun(out.Shape[1:], t.Shape[1:], func(inside bool, n int64) {
				for range n {
					if !inside {
						rest = rest[copy(rest, fill):]
						continue
					}
					length := stringBytes(from, 1)
					rest = rest[copy(rest, from[:length]):]
					from = from[length:]
				}
			})
		}
	}
	out.Data = out.Data[:len(out.Data)-len(rest)]
	return nil
}

// stringBytes returns the size of the first n elements of data, or of all if there are fewer.
func stringBytes(data []byte, n int64) int {
	at := 0
	for range n {
		if len(data)-at < 4 {
			return len(data)
		}
		length := binary.LittleEndian.Uint32(data[at:])
		if uint64(length) > uint64(len(data)-at-4) {
			return len(data)
		}
		at += 4 + int(length)
	}
	return at
}

// repeat fills to with copies of one element; nil means zeros.
func repeat(to, element []byte) {
	if element == nil {
		clear(to)
		return
	}
	for n := copy(to, element); n < len(to); {
		n += copy(to[n:], to[:n])
	}
}

// eachRun visits an item of shape large, with an item of shape small in its corner, row by row. It
// reports the length of each run of elements, and whether the run belongs to the small item.
func eachRun(large, small []int64, visit func(inside bool, n int64)) {
	if slices.Contains(large, 0) {
		return // no elements
	}
	switch {
	case len(large) == 0:
		visit(true, 1)
		return
	case len(large) == 1:
		if small[0] > 0 {
			visit(true, small[0])
		}
	default:
		for range small[0] {
			eachRun(large[1:], small[1:], visit)
		}
	}
	rest, _ := infer.Elements(large[1:])
	if rest *= large[0] - small[0]; rest > 0 {
		visit(false, rest)
	}
}

// element encodes one value of a type as tensors do; a string follows its length.
func element(d infer.DataType, text string) ([]byte, error) {
	switch {
	case d == infer.Bytes:
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
		return append(b, text...), nil // bound: a text of the config
	case d.Size() == 0:
		return nil, errors.New("it has no data type")
	}
	bits, err := d.ParseNumber(text)
	if err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:d.Size():d.Size()], nil
}
