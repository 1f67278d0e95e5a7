package form_test

import (
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/page/form"
)

// FuzzRead reads arbitrary text and files as each data type. The resulting tensor must match its
// shape and the limit, and can be shown.
func FuzzRead(f *testing.F) {
	f.Add(byte(infer.FP32), "2,-1", "[[1,2],[3,4]]", []byte(nil), false)
	f.Add(byte(infer.Bytes), "2", `["a","\u00e9"]`, []byte(nil), false)
	f.Add(byte(infer.Bytes), "-1", "a\nb", []byte(nil), false)
	f.Add(byte(infer.Uint8), "-1,-1,3", "", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02"), true)
	f.Add(byte(infer.Uint8), "4,4,3", "", []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!"), true)
	f.Add(byte(infer.Uint16), "-1", "", []byte{1, 2, 3, 4}, true)
	f.Fuzz(func(t *testing.T, d byte, shape, values string, file []byte, chosen bool) {
		field := form.Field{Name: "IN", Type: infer.DataType(d % 15), Shape: shape, Values: values}
		field.Dims, _, _ = field.ParseShape()
		if chosen {
			field.File = file
		}
		memory := heap()
		memory.Charge = &budget.Charge{Account: budget.New(budget.Config{Limit: memory.Limit})}
		tensor, err := field.Read(memory)
		if err != nil {
			return
		}
		if int64(len(tensor.Data)) > memory.Limit {
			t.Fatalf("the tensor has %d bytes, at most %d are allowed", len(tensor.Data), memory.Limit)
		}
		want, ok := infer.Elements(tensor.Shape)
		if got := int64(len(tensor.Data)) / int64(max(1, tensor.DataType.Size())); tensor.DataType != infer.Bytes && (!ok || got != want) {
			t.Fatalf("shape %v has %d elements, want %d", tensor.Shape, got, want)
		}
		if scan := infer.ScanBytes(tensor.Data, len(tensor.Data)); tensor.DataType == infer.Bytes && (scan.Rest != 0 || int64(scan.Count) != want) {
			t.Fatalf("shape %v has %d elements and %d bytes behind them, want %d and none", tensor.Shape, scan.Count, scan.Rest, want)
		}
		c := &form.Collector{}
		c.Take(&infer.Response{Outputs: []infer.Tensor{tensor}})
		if list, _ := c.Answer(); len(list) != 1 || list[0].Outputs[0].Broken {
			t.Fatalf("shown as %+v", list)
		}
	})
}
