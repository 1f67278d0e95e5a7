package form

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// heap returns a Room of the Go heap.
func heap() *Room {
	return &Room{
		Limit:  1 << 20,
		Tensor: func(t *infer.Tensor, n int) error { t.Data = make([]byte, n); return nil },
	}
}

// shown returns what an output with the same bytes would show.
func shown(t infer.Tensor) string {
	o := output(&t, int64(len(t.Data)))
	if t.DataType != infer.Bytes {
		return infer.ShapeString(t.Shape) + " " + o.Rows
	}
	var texts []string
	for _, e := range o.Elements {
		texts = append(texts, e.Text)
	}
	return infer.ShapeString(t.Shape) + " " + strings.Join(texts, "|")
}

// TestReadMakesTensors reads typed values, and shows them again.
func TestReadMakesTensors(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      infer.DataType
		shape  string
		values string
		want   string // the tensor as an output shows it, or the error
	}{
		{"nested JSON", infer.Int32, "2, 2", "[[1, -2],\n [3, 4]]", "[2,2] 1  -2\n3  4"},
		{"planes", infer.Uint8, "[2,2,2]", "1 2 3 4 5 6 7 8", "[2,2,2] 1  2\n3  4\n\n5  6\n7  8"},
		{"one fills all", infer.FP32, "2 3", "0.5", "[2,3] 0.5  0.5  0.5\n0.5  0.5  0.5"},
		{"open dimension", infer.Int64, "1,-1", "7 8 9", "[1,3] 7  8  9"},
		{"open dimension of one", infer.Int64, "-1", "7", "[1] 7"},
		{"scalar", infer.FP64, "", "1e300", "[] 1e+300"},
		{"floats", infer.FP32, "4", "nan, inf, -inf, 3", "[4] NaN  +Inf  -Inf  3.0"},
		{"halves", infer.FP16, "3", "0.1 65504 70000", "[3] 0.099975586  65504.0  +Inf"},
		{"brain floats", infer.BF16, "2", "1.0 3.14", "[2] 1.0  3.140625"},
		{"booleans", infer.Bool, "4", "true False 1 0", "[4] true  false  true  false"},
		{"largest", infer.Uint64, "1", "18446744073709551615", "[1] 18446744073709551615"},
		{"one text", infer.Bytes, "1, 1", "a, [b]\r\nc", "[1,1] a, [b]\nc"},
		{"an empty text", infer.Bytes, "1", "", "[1] "},
		{"lines", infer.Bytes, "2", "a b\r\nc\r\n", "[2] a b|c"},
		{"JSON of texts", infer.Bytes, "2,2", `[["a","b"],["\u00e9","]"]]`, "[2,2] a|b|é|]"},
		{"open dimension of texts", infer.Bytes, "-1", "a\nb\nc", "[3] a|b|c"},

		{"too many", infer.Int32, "2", "1 2 3", "input 'IN': shape [2] wants 2 values, and there are 3"},
		{"too few", infer.Int32, "2,2", "1 2 3", "input 'IN': shape [2,2] wants 4 values, and there are 3"},
		{"does not divide", infer.Int32, "2,-1", "1 2 3", "input 'IN': 3 values do not fill a tensor of shape [2,-1]"},
		{"two open", infer.Int32, "-1,-1", "1", "input 'IN': the shape has -1 more than once; one dimension alone can be found from the values"},
		{"no number", infer.Int8, "1", "128", `input 'IN': "128" is not a value of type INT8`},
		{"a text", infer.FP32, "1", "<b>", `input 'IN': "<b>" is not a value of type FP32`},
		{"shape is text", infer.FP32, "2 x 3", "1", `input 'IN': dimension "x" of the shape: want a whole number, or -1 once`},
		{"huge", infer.FP32, "1000000,1000000", "1", "input 'IN': the tensor has 4000000000000 bytes, at most 1048576 are allowed. --http-max-input-size changes the limit"},
		{"beyond all", infer.FP32, "4611686018427387904,4", "1", "input 'IN': shape [4611686018427387904,4] has more elements than a tensor can"},
		{"numbers as texts", infer.Bytes, "2", "[1, 2]", "input 'IN': the array has something else than texts: attempt to access JSON non-string as string"},
		{"half an array", infer.Bytes, "2", `["a", `, "input 'IN': the values begin with a bracket, and are no array of JSON"},
	} {
		f := Field{Name: "IN", Type: c.d, Shape: c.shape, Values: c.values}
		tensor, err := f.Read(heap())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = shown(tensor)
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFieldsProposeWhatCanBeSent reads the proposals for a model's inputs.
func TestFieldsProposeWhatCanBeSent(t *testing.T) {
	for _, c := range []struct {
		batch int32
		in    *kserve.ModelInput
		want  string
	}{
		{0, &kserve.ModelInput{DataType: kserve.DataType_TYPE_FP32, Dims: []int64{2}}, "[2] 1.0  1.0"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_INT32, Dims: []int64{2}}, "[1,2] 1  1"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_BOOL, Dims: []int64{-1, -1}}, "[1,1,1] true"},
		{0, &kserve.ModelInput{DataType: kserve.DataType_TYPE_STRING, Dims: []int64{-1}}, "[1] hello"},
		{8, &kserve.ModelInput{DataType: kserve.DataType_TYPE_INT32, Dims: []int64{2}, IsShapeTensor: true}, "[2] 1  1"},
	} {
		c.in.Name = "IN"
		f := Fields(&kserve.ModelConfig{MaxBatchSize: c.batch, Input: []*kserve.ModelInput{c.in}})[0]
		tensor, err := f.Read(heap())
		if err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		if got := shown(tensor); got != c.want {
			t.Errorf("%v: got %q, want %q", c.in, got, c.want)
		}
	}
	f := Fields(&kserve.ModelConfig{Input: []*kserve.ModelInput{{Name: "IN", Optional: true, Dims: []int64{1}}}})[0]
	if !f.Empty() {
		t.Errorf("an optional input has the proposal %q, want none", f.Values)
	}
}

// chequered returns a PNG of 4 x 2 pixels, red and half transparent blue.
func chequered(t *testing.T) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, 4, 2))
	for y := range 2 {
		for x := range 4 {
			m.Set(x, y, color.NRGBA{R: 255, A: 255})
			if (x+y)%2 == 1 {
				m.Set(x, y, color.NRGBA{B: 254, A: 128})
			}
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPicturesBecomeTensors reads a picture in the layouts of models, and scales it.
func TestPicturesBecomeTensors(t *testing.T) {
	for _, c := range []struct {
		name string
		d    infer.DataType
		dims []int64
		want string
	}{
		{"channels last", infer.Uint8, []int64{-1, -1, 3}, "[2,4,3] 255  0  0\n0  0  254\n255  0  0\n0  0  254\n\n0  0  254\n255  0  0\n0  0  254\n255  0  0"},
		{"scaled, with alpha, in a batch", infer.Uint8, []int64{-1, 1, 2, 4}, "[1,1,2,4] 255  0  0  255\n255  0  0  255"},
		{"channels first", infer.FP32, []int64{3, 2, 2}, "[3,2,2] 255.0  255.0\n0.0  0.0\n\n0.0  0.0\n0.0  0.0\n\n0.0  0.0\n254.0  254.0"},
		{"grey", infer.Uint8, []int64{1, 2, 1}, "[1,2,1] 76\n76"},
		{"no picture", infer.Uint8, []int64{7}, "input 'IN': shape [7] is no picture's: want height, width and 1, 3 or 4 channels, or the channels first"},
		{"large", infer.Uint8, []int64{1 << 40, 1 << 40, 3}, "input 'IN': shape [1099511627776,1099511627776,3] has more than 33554432 elements"},
	} {
		f := Field{Name: "IN", Type: c.d, Dims: c.dims, File: chequered(t)}
		tensor, err := f.Read(heap())
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = shown(tensor)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFilesBecomeTensors(t *testing.T) {
	f := Field{Name: "IN", Type: infer.Uint16, Shape: "-1", File: []byte{1, 0, 0, 1}}
	tensor, err := f.Read(heap())
	if got := shown(tensor); err != nil || got != "[2] 1  256" {
		t.Errorf("bytes of a tensor: got %q, %v", got, err)
	}
	f.File = []byte{1}
	if _, err := f.Read(heap()); err == nil || err.Error() != "input 'IN': the file has 1 bytes, no whole number of elements of type UINT16" {
		t.Errorf("half an element: got %v", err)
	}
	f = Field{Name: "IN", Type: infer.Bytes, Shape: "1,-1", File: chequered(t)}
	if tensor, err = f.Read(heap()); err != nil || len(tensor.Data) != 4+len(f.File) {
		t.Errorf("a picture of a BYTES tensor: got %d bytes, %v, want it as it is", len(tensor.Data), err)
	}
}

// bytesOf returns the data of a BYTES tensor.
func bytesOf(elements ...string) []byte {
	var data []byte
	for _, e := range elements {
		n := len(e)
		data = append(append(data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)), e...)
	}
	return data
}

// TestOutputsAreShown has texts, pictures, other bytes, and invalid lengths.
func TestOutputsAreShown(t *testing.T) {
	picture := string(chequered(t))
	long := strings.Repeat("é", mostText)
	c := &Collector{}
	c.Take(&infer.Response{Outputs: []infer.Tensor{
		{Name: "B", DataType: infer.Bytes, Shape: []int64{5}, Data: bytesOf("<script>", picture, "\x00\x01", long, "<svg xmlns='http://www.w3.org/2000/svg'/>")},
		{Name: "P", DataType: infer.Uint8, Shape: []int64{1, 2, 2, 3}, Data: make([]byte, 12)},
		{Name: "N", DataType: infer.Int32, Shape: []int64{2000}, Data: make([]byte, 8000)},
		{Name: "L", DataType: infer.Bytes, Shape: []int64{1}, Data: []byte{255, 255, 255, 255, 1}},
	}, Parameters: []infer.Parameter{{Name: "p", Kind: infer.IntParameter, Int: 7}}})
	c.Take(&infer.Response{Err: infer.Errorf(infer.Unavailable, "no <b>"), Final: true})
	list, more := c.Answer()
	if len(list) != 2 || more != 0 {
		t.Fatalf("got %d responses and %d more, want 2", len(list), more)
	}
	b := list[0].Outputs[0]
	if e := b.Elements; len(e) != 5 || e[0].Text != "<script>" || !strings.HasPrefix(e[1].Picture, "data:image/png;base64,iVBOR") || e[1].Text != "" ||
		!strings.Contains(e[2].Hex, "00 01") || len(e[3].Text) != mostText || !e[3].Cut || e[4].Picture != "" || !strings.HasPrefix(e[4].Text, "<svg") {
		t.Errorf("texts: got %+.200v", e)
	}
	if got := list[0].Outputs[1].Picture; !strings.HasPrefix(got, "data:image/png;base64,") {
		t.Errorf("pixels: got %.40q, want a picture", got)
	}
	if n := list[0].Outputs[2]; n.Left != 1000 || n.Picture != "" || strings.Count(n.Rows, "0") != 1000 {
		t.Errorf("numbers: got %d left, and %.40q", n.Left, n.Rows)
	}
	if !list[0].Outputs[3].Broken {
		t.Error("a length beyond the end is not noticed")
	}
	if p := list[0].Parameters; len(p) != 1 || p[0] != (Named{"p", "7"}) {
		t.Errorf("parameters: got %v", p)
	}
	if r := list[1]; r.Error != "no <b>" || r.Code != "Unavailable" {
		t.Errorf("error: got %+v", r)
	}
}

// counted is a Memory that counts.
type counted struct{ n int }

func (m *counted) Retain()  { m.n++ }
func (m *counted) Release() { m.n-- }

// TestCollectorEndsStreams has a model with an endless stream. Each response is released at once,
// and the first that is not shown stops the model.
func TestCollectorEndsStreams(t *testing.T) {
	memory, stops := &counted{}, 0
	c := &Collector{Enough: func() { stops++ }}
	for range MostResponses + 3 {
		memory.Retain()
		c.Take(&infer.Response{Outputs: []infer.Tensor{{Name: "O", DataType: infer.Bytes, Shape: []int64{1}, Data: bytesOf(strings.Repeat("x", 1<<20)), Memory: memory}}})
	}
	c.Take(&infer.Response{Empty: true, Final: true})
	list, more := c.Answer()
	if len(list) != MostResponses || more != 3 || stops != 1 || memory.n != 0 {
		t.Errorf("got %d responses, %d more, %d stops and %d references, want %d, 3, 1 and 0", len(list), more, stops, memory.n, MostResponses)
	}
	if c.room != 0 {
		t.Errorf("%d bytes of the room are left, want none", c.room)
	}
}

// TestHalvesAreExact converts all halves both ways, and numbers between them.
func TestHalvesAreExact(t *testing.T) {
	for h := range 1 << 16 {
		v := infer.FromFP16(uint16(h))
		if back := infer.ToFP16(v); back != uint16(h) && v == v {
			t.Fatalf("%#04x is %v, which is %#04x", h, v, back)
		}
		if b := infer.ToBF16(infer.FromBF16(uint16(h))); b != uint16(h) && infer.FromBF16(uint16(h)) == infer.FromBF16(uint16(h)) {
			t.Fatalf("bfloat16 %#04x comes back as %#04x", h, b)
		}
	}
	for v, want := range map[float64]uint16{1 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, 65519: 0x7bff, 65520: 0x7c00, math.Ldexp(1, -25): 0, math.Ldexp(1.5, -25): 1} {
		if got := infer.ToFP16(float32(v)); got != want {
			t.Errorf("%v: got %#04x, want %#04x", v, got, want)
		}
	}
}

// floats returns the data of an FP32 tensor.
func floats(values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// TestFloatsAreShownAsPictures checks one pixel of each picture, in the layouts and scales of
// models, and tensors that are not pictures.
func TestFloatsAreShownAsPictures(t *testing.T) {
	fill := func(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }
	planes := slices.Concat(fill(64, 1), fill(64, 0.5), fill(64, 0))
	for _, c := range []struct {
		name   string
		d      infer.DataType
		shape  []int64
		values []float32
		want   string // colour of the pixel at 0, 0; "" if there is no picture
	}{
		{"grey", infer.FP32, []int64{8, 8}, fill(64, 0.5), "{128 128 128 255}"},
		{"grey in a batch", infer.FP32, []int64{1, 1, 8, 8}, fill(64, 1), "{255 255 255 255}"},
		{"channels first", infer.FP32, []int64{3, 8, 8}, planes, "{255 128 0 255}"},
		{"channels first, in a batch", infer.FP32, []int64{1, 3, 8, 8}, planes, "{255 128 0 255}"},
		{"channels last", infer.FP32, []int64{8, 8, 3}, slices.Repeat([]float32{0, 1, 0.2}, 64), "{0 255 51 255}"},
		{"up to 255", infer.FP32, []int64{8, 8, 1}, append(fill(63, 1), 255), "{1 1 1 255}"},
		{"with alpha", infer.FP32, []int64{8, 8, 4}, slices.Repeat([]float32{1, 1, 0, 0.5}, 64), "{255 255 0 128}"},
		{"beyond 255", infer.FP32, []int64{8, 8}, append(fill(63, 1), 256), ""},
		{"below 0", infer.FP32, []int64{8, 8}, append(fill(63, 1), -0.001), ""},
		{"not a number", infer.FP32, []int64{8, 8}, append(fill(63, 1), float32(math.NaN())), ""},
		{"small", infer.FP32, []int64{7, 9}, fill(63, 1), ""},
		{"a vector", infer.FP32, []int64{1, 64}, fill(64, 1), ""},
		{"whole numbers", infer.Int32, []int64{8, 8}, fill(64, 0), ""},
	} {
		o := output(&infer.Tensor{Name: "O", DataType: c.d, Shape: c.shape, Data: floats(c.values...)}, int64(4*len(c.values)))
		got := ""
		if o.Picture != "" {
			file, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(o.Picture, "data:image/png;base64,"))
			if err != nil {
				t.Fatal(err)
			}
			picture, err := png.Decode(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(color.NRGBAModel.Convert(picture.At(0, 0)))
		}
		if got != c.want || o.Floats != (c.want != "") || o.Rows == "" {
			t.Errorf("%s: got %q, floats %t, want %q with the numbers", c.name, got, o.Floats, c.want)
		}
	}
	for d, one := range map[infer.DataType][]byte{infer.FP16: {0, 0x3c}, infer.BF16: {0x80, 0x3f}, infer.FP64: {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}} {
		if got := samples(d, slices.Repeat(one, 2)); !bytes.Equal(got, []byte{255, 255}) {
			t.Errorf("%s: 1 is drawn as %v, want 255", d, got)
		}
	}
}

// TestOutputsCanBeSaved compares with the files of numpy.save, and has sounds, bytes and long texts
// in BYTES.
func TestOutputsCanBeSaved(t *testing.T) {
	const matrix = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
	for _, c := range []struct {
		tensor infer.Tensor
		name   string
		want   string
	}{
		{infer.Tensor{Name: "M", DataType: infer.FP32, Shape: []int64{2, 3}, Data: floats(0, 1, 2, 3, 4, 5)}, "M.npy",
			matrix + strings.Repeat(" ", 127-len(matrix)) + "\n" + string(floats(0, 1, 2, 3, 4, 5))},
		{infer.Tensor{Name: "B", DataType: infer.Bool, Shape: []int64{2}, Data: []byte{1, 0}}, "B.npy", "(2,)"},
		{infer.Tensor{Name: "S", DataType: infer.Uint64, Shape: []int64{}, Data: make([]byte, 8)}, "S.npy", "'shape': (), }"},
		{infer.Tensor{Name: "F", DataType: infer.BF16, Shape: []int64{1}, Data: []byte{1, 2}}, "F.bin", "\x01\x02"},
		{infer.Tensor{Name: "L", DataType: infer.Uint8, Shape: []int64{mostFile + 1}, Data: make([]byte, mostFile+1)}, "", ""},
		{infer.Tensor{Name: "W", DataType: infer.Uint8, Shape: []int64{3}, Data: []byte{1, 2}}, "", ""}, // incomplete
	} {
		c.tensor.Memory = nil
		collector := &Collector{}
		collector.Take(&infer.Response{Outputs: []infer.Tensor{c.tensor}})
		list, _ := collector.Answer()
		got := list[0].Outputs[0].File
		file, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(got.URL, "data:application/octet-stream;base64,"))
		if err != nil || got.Name != c.name || !strings.Contains(string(file), c.want) || strings.HasPrefix(c.want, "\x93") && string(file) != c.want {
			t.Errorf("%s: got %q, %.200q, %v, want %q, %q", c.tensor.Name, got.Name, file, err, c.name, c.want)
		}
	}
	sound := "RIFF\x24\x00\x00\x00WAVEfmt "
	long := strings.Repeat("x", mostText+1)
	o := output(&infer.Tensor{Name: "B", DataType: infer.Bytes, Shape: []int64{4}, Data: bytesOf(sound, "\x00", long, "text")}, int64(len(bytesOf(sound, "\x00", long, "text"))))
	e := o.Elements
	if len(e) != 4 || !strings.HasPrefix(e[0].Sound, "data:audio/wav;base64,UklGR") || e[0].File.Name != "B-0.wav" || e[0].Hex != "" || e[0].Picture != "" ||
		e[1].File != (File{"B-1.bin", "data:application/octet-stream;base64,AA=="}) || e[2].File.Name != "B-2.txt" || e[3].File != (File{}) {
		t.Errorf("got %+.300v", e)
	}
}

// TestWholeTensorsLeaveRoom has more large outputs than are kept whole: the first numbers of each
// are shown.
func TestWholeTensorsLeaveRoom(t *testing.T) {
	c := &Collector{}
	for range MostResponses {
		c.Take(&infer.Response{Outputs: []infer.Tensor{{Name: "O", DataType: infer.FP32, Shape: []int64{mostFile / 4}, Data: make([]byte, mostFile)}}})
	}
	list, _ := c.Answer()
	for i, r := range list {
		if o := r.Outputs[0]; strings.Count(o.Rows, "0.0") != mostElements || (o.File.URL != "") != (i < (MostKept-spared)/mostFile) {
			t.Fatalf("response %d: got %d numbers, file %q", i, strings.Count(o.Rows, "0.0"), o.File.Name)
		}
	}
}

// TestCollectorCutsTexts has responses with errors and parameters that are longer than a page
// shows.
func TestCollectorCutsTexts(t *testing.T) {
	c := &Collector{}
	long := strings.Repeat("x", 1<<20)
	many := make([]infer.Parameter, 1000)
	for i := range many {
		many[i] = infer.Parameter{Name: "p", Kind: infer.StringParameter, String: long}
	}
	for range MostResponses {
		c.Take(&infer.Response{Err: &infer.Error{Message: long}, Parameters: many})
	}
	list, _ := c.Answer()
	total := 0
	for _, r := range list {
		total += len(r.Error)
		for _, p := range r.Parameters {
			total += len(p.Name) + len(p.Value)
		}
	}
	if len(list[0].Error) != mostText || total < mostTexts || total > mostTexts+MostResponses*mostParameters*16 {
		t.Errorf("got %d bytes of the first error and %d of all texts, want %d and about %d", len(list[0].Error), total, mostText, mostTexts)
	}
}
