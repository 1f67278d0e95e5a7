package form

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestOutputsAreShown checks how texts, pictures, other bytes and outputs with invalid lengths are
// shown.
func TestOutputsAreShown(t *testing.T) {
	picture := string(Chequered(t))
	long := strings.Repeat("é", mostText)
	c := &Collector{}
	c.Take(&infer.Response{Outputs: []infer.Tensor{
		{Name: "B", DataType: infer.Bytes, Shape: []int64{5}, Data: testkit.TensorData("<script>", picture, "\x00\x01", long, "<svg xmlns='http://www.w3.org/2000/svg'/>")},
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

// TestCollectorEndsStreams checks that each response of an endless stream is released at once, and
// that the first response that is not shown stops the model.
func TestCollectorEndsStreams(t *testing.T) {
	memory, stops := &counted{}, 0
	c := &Collector{Enough: func() { stops++ }}
	for range MostResponses + 3 {
		memory.Retain()
		c.Take(&infer.Response{Outputs: []infer.Tensor{{Name: "O", DataType: infer.Bytes, Shape: []int64{1}, Data: testkit.TensorData(strings.Repeat("x", 1<<20)), Memory: memory}}})
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

// TestFloatsAreShownAsPictures checks one pixel of pictures in the usual layouts and scales of
// models, and that other tensors are not shown as pictures.
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
		o := output(&infer.Tensor{Name: "O", DataType: c.d, Shape: c.shape, Data: testkit.TensorData(c.values...)}, int64(4*len(c.values)))
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

// TestOutputsCanBeSaved checks that saved tensors equal the files of numpy.save, and checks the
// files for sounds, bytes and long texts in BYTES outputs.
func TestOutputsCanBeSaved(t *testing.T) {
	const matrix = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
	for _, c := range []struct {
		tensor infer.Tensor
		name   string
		want   string
	}{
		{infer.Tensor{Name: "M", DataType: infer.FP32, Shape: []int64{2, 3}, Data: testkit.TensorData[float32](0, 1, 2, 3, 4, 5)}, "M.npy",
			matrix + strings.Repeat(" ", 127-len(matrix)) + "\n" + string(testkit.TensorData[float32](0, 1, 2, 3, 4, 5))},
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
	o := output(&infer.Tensor{Name: "B", DataType: infer.Bytes, Shape: []int64{4}, Data: testkit.TensorData(sound, "\x00", long, "text")}, int64(len(testkit.TensorData(sound, "\x00", long, "text"))))
	e := o.Elements
	if len(e) != 4 || !strings.HasPrefix(e[0].Sound, "data:audio/wav;base64,UklGR") || e[0].File.Name != "B-0.wav" || e[0].Hex != "" || e[0].Picture != "" ||
		e[1].File != (File{"B-1.bin", "data:application/octet-stream;base64,AA=="}) || e[2].File.Name != "B-2.txt" || e[3].File != (File{}) {
		t.Errorf("got %+.300v", e)
	}
}

// TestTextsFitBesideWholeTensors checks that if there are too many large outputs to keep whole, the
// first numbers of each are still shown.
func TestTextsFitBesideWholeTensors(t *testing.T) {
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

// TestCollectorCutsTexts checks that long errors and parameters are cut to the length that a page
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
