package server

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// maxClassified bounds the elements of a classified output.
const maxClassified = 1_000_000

// Classify returns the k highest elements of out, for each item of the batch if batched, as a BYTES
// tensor on the Go heap: "<value>:<index>" or "<value>:<index>:<label>". The highest come first, of
// equal ones the lower index, and NaN last. labels may be nil. The new tensor is charged to c.
func Classify(c *budget.Charge, out *infer.Tensor, k int, batched bool, labels []string) (infer.Tensor, error) {
	t := infer.Tensor{Name: out.Name, DataType: infer.Bytes}
	switch out.DataType {
	case infer.Bool, infer.FP16, infer.BF16, infer.Bytes, infer.Invalid:
		return t, infer.Errorf(infer.InvalidArg, "class result not available for output due to unsupported type '%s'", out.DataType)
	}
	if err := CheckOutputSize(out); err != nil {
		return t, err
	}
	size := out.DataType.Size()
	n := len(out.Data) / size
	if n > maxClassified {
		return t, infer.Errorf(infer.InvalidArg, "classification output tensor too large")
	}
	items := 1
	if batched && len(out.Shape) > 0 {
		items = int(out.Shape[0])
		t.Shape = append(t.Shape, out.Shape[0]) // bound: two dimensions
	}
	each := 0
	if n > 0 {
		each = n / items
	}
	k = min(k, each)
	t.Shape = append(t.Shape, int64(k)) // bound: two dimensions
	t.Data = []byte{}
	if k == 0 {
		return t, nil
	}
	if err := c.Take(budget.JSON, rankedBytes*int64(each)); err != nil {
		return t, err
	}
	for i := range items {
		item := out.Data[i*each*size : (i+1)*each*size]
		var err error
		switch {
		case out.DataType.IsFloat():
			t.Data, err = appendClasses(c, t.Data, numbers(item, size, out.DataType.Float), k, labels, appendFixed)
		case out.DataType.IsUnsigned():
			t.Data, err = appendClasses(c, t.Data, numbers(item, size, out.DataType.Bits), k, labels,
				func(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) })
		default:
			t.Data, err = appendClasses(c, t.Data, numbers(item, size, func(data []byte) int64 { return int64(out.DataType.Bits(data)) }), k, labels,
				func(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) })
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

const (
	// rankedBytes is the memory for the value and the index of an element during ranking.
	rankedBytes = 16
	// classBytes bounds the text of a class without its label: a double has up to 309 digits before
	// the point.
	classBytes = 352
)

// ClassesCost bounds what Classify takes, for a reply that is charged in advance.
func ClassesCost(out *infer.Tensor, k int, batched bool, labels []string) int64 {
	n, items := len(out.Data)/max(out.DataType.Size(), 1), 1
	if n > maxClassified { // Classify rejects them
		return 0
	}
	if batched && len(out.Shape) > 0 {
		items = int(min(max(out.Shape[0], 1), int64(max(n, 1))))
	}
	text := 0
	for _, label := range labels {
		text += len(label)
	}
	one := 2 * (min(k, n/items)*classBytes + text) // the tensor grows in steps
	return int64(items)*int64(one) + rankedBytes*int64(n)
}

func appendClasses[T int64 | uint64 | float64](c *budget.Charge, dst []byte, values []T, k int, labels []string, print func([]byte, T) []byte) (_ []byte, err error) {
	for _, i := range top(values, k) {
		label := ""
		if i < len(labels) {
			label = labels[i]
		}
		if dst, err = budget.Grow(c, budget.JSON, dst, classBytes+len(label)); err != nil {
			return dst, err
		}
		at := len(dst)
		dst = print(append(dst, 0, 0, 0, 0), values[i])
		dst = strconv.AppendInt(append(dst, ':'), int64(i), 10)
		if label != "" {
			dst = append(append(dst, ':'), label...)
		}
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst, nil
}

// insertionLimit is the largest k for which the k highest are found by insertion. More are found by
// sorting.
const insertionLimit = 32

// top returns the indexes of the k highest values, 0 < k <= len(values).
func top[T int64 | uint64 | float64](values []T, k int) []int {
	// before reports whether the value at a comes before the one at b.
	before := func(a, b int) bool {
		va, vb := values[a], values[b]
		switch {
		case va > vb:
			return true
		case va < vb:
			return false
		case va == vb:
			return a < b
		}
		aNaN, bNaN := va != va, vb != vb
		if aNaN != bNaN {
			return bNaN
		}
		return a < b
	}
	if k <= insertionLimit {
		best := make([]int, 0, k+1) // bound: insertionLimit
		for i := range values {
			if len(best) == k && !before(i, best[k-1]) {
				continue
			}
			at := len(best)
			for at > 0 && before(i, best[at-1]) {
				at--
			}
			best = slices.Insert(best, at, i) // bound: insertionLimit
			best = best[:min(len(best), k)]
		}
		return best
	}
	order := make([]int, len(values)) // bound: charged as rankedBytes
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case a == b:
			return 0
		case before(a, b):
			return -1
		}
		return 1
	})
	return order[:k]
}

// appendFixed prints a value as C's %f does.
func appendFixed(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "nan"...)
	case math.IsInf(v, 0):
		return append(b, strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v, 'f', -1, 64)), "+")...) // bound: a number
	}
	return strconv.AppendFloat(b, v, 'f', 6, 64)
}

// numbers reads the elements of data, which have size bytes each.
func numbers[T any](data []byte, size int, number func(data []byte) T) []T {
	values := make([]T, len(data)/size) // bound: charged as rankedBytes
	for i := range values {
		values[i] = number(data[i*size:])
	}
	return values
}

// CheckOutputSize compares the bytes of an output with its shape. BYTES are checked when they are
// read. A shape without dimensions is a scalar or, as in requests, an empty tensor.
func CheckOutputSize(out *infer.Tensor) error {
	if out.DataType.Size() == 0 || len(out.Shape) == 0 && len(out.Data) == 0 {
		return nil
	}
	want, ok := infer.ByteSize(out.DataType, out.Shape)
	if !ok || want != int64(len(out.Data)) {
		return infer.Errorf(infer.Internal, "output '%s' of shape %s has %d bytes, want %d",
			out.Name, infer.ShapeString(out.Shape), len(out.Data), want)
	}
	return nil
}
