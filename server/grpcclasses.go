package server

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models"
)

// grpcMaxClassified is how many elements an output may have to be classified.
const grpcMaxClassified = 1_000_000

// classify replaces the outputs that are wanted as classes by their K highest
// values each, "<value>:<index>" or "<value>:<index>:<label>".
func (c *grpcCall) classify(r *infer.Response, info *models.Info) error {
	for _, want := range c.classes {
		for i := range r.Outputs {
			if r.Outputs[i].Name != want.output {
				continue
			}
			t, err := grpcClassify(&r.Outputs[i], want.count, info)
			if err != nil {
				return err
			}
			r.Outputs[i].Release()
			r.Outputs[i] = t
		}
	}
	return nil
}

func grpcClassify(t *infer.Tensor, count int64, info *models.Info) (infer.Tensor, error) {
	value, print := grpcClassValue(t.DataType)
	if value == nil {
		return infer.Tensor{}, grpcInvalid("class result not available for output due to unsupported type '%s'", t.DataType)
	}
	size := t.DataType.Size()
	n := len(t.Data) / size
	if n > grpcMaxClassified {
		return infer.Tensor{}, grpcInvalid("classification output tensor too large")
	}
	batch := 1
	if info.Config.GetMaxBatchSize() > 0 && len(t.Shape) > 0 {
		batch = int(min(max(t.Shape[0], 0), int64(n)))
	}
	each := 0
	if batch > 0 {
		each = n / batch
	}
	k := int(min(count, int64(each)))
	labels := info.Labels[t.Name]
	var data, text []byte
	order := make([]int, each)
	for item := range batch {
		values := t.Data[item*each*size:]
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			x, y := value(values[a*size:]), value(values[b*size:])
			return cmp.Or(y.compare(x), cmp.Compare(a, b))
		})
		for _, i := range order[:k] {
			text = print(text[:0], value(values[i*size:]))
			text = append(text, ':')
			text = strconv.AppendInt(text, int64(i), 10)
			if i < len(labels) && labels[i] != "" {
				text = append(append(text, ':'), labels[i]...)
			}
			data = binary.LittleEndian.AppendUint32(data, uint32(len(text)))
			data = append(data, text...)
		}
	}
	shape := []int64{int64(k)}
	if info.Config.GetMaxBatchSize() > 0 {
		shape = []int64{int64(batch), int64(k)}
	}
	return infer.Tensor{Name: t.Name, DataType: infer.Bytes, Shape: shape, Data: data}, nil
}

// grpcNumber is a value of any numeric type: one field is used.
type grpcNumber struct {
	i int64
	u uint64
	f float64
}

func (n grpcNumber) compare(m grpcNumber) int {
	return cmp.Or(cmp.Compare(n.i, m.i), cmp.Compare(n.u, m.u), cmp.Compare(n.f, m.f))
}

// grpcClassValue returns how the first element of b is read and printed, or
// nil for types that have no classes.
func grpcClassValue(d infer.DataType) (read func(b []byte) grpcNumber, print func(b []byte, n grpcNumber) []byte) {
	le := binary.LittleEndian
	printI := func(b []byte, n grpcNumber) []byte { return strconv.AppendInt(b, n.i, 10) }
	printU := func(b []byte, n grpcNumber) []byte { return strconv.AppendUint(b, n.u, 10) }
	switch d {
	case infer.Int8:
		return func(b []byte) grpcNumber { return grpcNumber{i: int64(int8(b[0]))} }, printI
	case infer.Int16:
		return func(b []byte) grpcNumber { return grpcNumber{i: int64(int16(le.Uint16(b)))} }, printI
	case infer.Int32:
		return func(b []byte) grpcNumber { return grpcNumber{i: int64(int32(le.Uint32(b)))} }, printI
	case infer.Int64:
		return func(b []byte) grpcNumber { return grpcNumber{i: int64(le.Uint64(b))} }, printI
	case infer.Uint8:
		return func(b []byte) grpcNumber { return grpcNumber{u: uint64(b[0])} }, printU
	case infer.Uint16:
		return func(b []byte) grpcNumber { return grpcNumber{u: uint64(le.Uint16(b))} }, printU
	case infer.Uint32:
		return func(b []byte) grpcNumber { return grpcNumber{u: uint64(le.Uint32(b))} }, printU
	case infer.Uint64:
		return func(b []byte) grpcNumber { return grpcNumber{u: le.Uint64(b)} }, printU
	case infer.FP32:
		return func(b []byte) grpcNumber { return grpcNumber{f: float64(math.Float32frombits(le.Uint32(b)))} }, grpcPrintFloat
	case infer.FP64:
		return func(b []byte) grpcNumber { return grpcNumber{f: math.Float64frombits(le.Uint64(b))} }, grpcPrintFloat
	}
	return nil, nil
}

// grpcPrintFloat prints as C's %f does.
func grpcPrintFloat(b []byte, n grpcNumber) []byte {
	switch {
	case math.IsNaN(n.f) && math.Signbit(n.f):
		return append(b, "-nan"...)
	case math.IsNaN(n.f):
		return append(b, "nan"...)
	case math.IsInf(n.f, 1):
		return append(b, "inf"...)
	case math.IsInf(n.f, -1):
		return append(b, "-inf"...)
	}
	return strconv.AppendFloat(b, n.f, 'f', 6, 64)
}
