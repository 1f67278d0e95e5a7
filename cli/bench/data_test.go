package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/recording"
)

// The tests of this file are internal because they compare the bytes of samples, before any
// protocol encodes them.

func config() *kserve.ModelConfig {
	return &kserve.ModelConfig{Name: "m", MaxBatchSize: 4, Input: []*kserve.ModelInput{
		{Name: "F", DataType: kserve.DataType_TYPE_FP32, Dims: []int64{2}},
		{Name: "T", DataType: kserve.DataType_TYPE_STRING, Dims: []int64{-1}},
		{Name: "O", DataType: kserve.DataType_TYPE_INT64, Dims: []int64{1}, Optional: true},
	}}
}

// TestDataOfFiles checks that --data reads files in perf_analyzer's format.
func TestDataOfFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	text := `{"data": [{"F": [1, 2.5], "T": {"content": ["a", "bc"], "shape": [2]}},
		[{"F": {"b64": "AACAPwAAAEA="}, "T": {"content": ["x"], "shape": [1]}, "O": [9223372036854775807]}]]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	samples, err := makeSamples(&options{data: path, batch: 2}, config())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 2 || len(samples[0]) != 2 || len(samples[1]) != 3 {
		t.Fatalf("got %d samples, %+v", len(samples), samples)
	}
	first := []byte{0, 0, 128, 63, 0, 0, 32, 64}
	if f := samples[0][0]; !slices.Equal(f.Shape, []int64{2, 2}) || !bytes.Equal(f.Data, append(slices.Clone(first), first...)) {
		t.Errorf("F: got shape %v, bytes %v", f.Shape, f.Data)
	}
	if text := samples[0][1]; !slices.Equal(text.Shape, []int64{2, 2}) || string(text.Data) != strings.Repeat("\x01\x00\x00\x00a\x02\x00\x00\x00bc", 2) {
		t.Errorf("T: got shape %v, bytes %q", text.Shape, text.Data)
	}
	if o := samples[1][2]; !bytes.Equal(o.Data[:8], []byte{255, 255, 255, 255, 255, 255, 255, 127}) {
		t.Errorf("O: got %v", o.Data)
	}
}

// TestFilesAreElements checks that a file becomes one element of a BYTES input.
func TestFilesAreElements(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	samples, err := makeSamples(&options{inputs: map[string]string{"T": "@" + path}, batch: 1, textLength: 10}, config())
	if err != nil {
		t.Fatal(err)
	}
	if text := samples[0][1]; !slices.Equal(text.Shape, []int64{1, 1}) || string(text.Data) != "\x03\x00\x00\x00abc" {
		t.Errorf("got shape %v, bytes %q", text.Shape, text.Data)
	}
}

// TestDimensionsOfAnySizeAreOne checks that dimensions of any size become 1 in generated inputs,
// and that the model's configuration is not changed.
func TestDimensionsOfAnySizeAreOne(t *testing.T) {
	c := config()
	samples, err := makeSamples(&options{batch: 2, textLength: 10}, c)
	if err != nil || !slices.Equal(samples[0][1].Shape, []int64{2, 1}) {
		t.Errorf("got %+v, %v", samples, err)
	}
	if dims := c.GetInput()[1].GetDims(); !slices.Equal(dims, []int64{-1}) {
		t.Errorf("the configuration has changed to %v", dims)
	}
}

// TestRecordedInputsAreSamples checks that the inputs of the model's recorded requests become
// samples, in order, and that redacted inputs become zeros.
func TestRecordedInputsAreSamples(t *testing.T) {
	directory := t.TempDir()
	for i, model := range []string{"m", "other", "m"} {
		f, err := os.Create(filepath.Join(directory, string(rune('a'+i))+recording.Extension))
		if err != nil {
			t.Fatal(err)
		}
		r := &recording.Record{Model: model, Request: recording.Message{Tensors: []recording.Tensor{
			{Tensor: infer.Tensor{Name: "F", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{byte(i + 1)}}},
			{Tensor: infer.Tensor{Name: "T", DataType: infer.Int16, Shape: []int64{2}}, Redacted: true},
		}}}
		if _, err := r.WriteTo(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	samples, err := makeSamples(&options{record: directory, model: "m"}, config())
	if err != nil || len(samples) != 2 || samples[1][0].Data[0] != 3 || len(samples[0][1].Data) != 4 {
		t.Errorf("got %+v, %v", samples, err)
	}
	if _, err := makeSamples(&options{record: directory, model: "n"}, config()); err == nil || !strings.Contains(err.Error(), "has no recorded requests to model n") {
		t.Errorf("got %v", err)
	}
}

// TestRandomValuesFitTheirTypes generates random values and zeros of each data type, and checks
// their bytes.
func TestRandomValuesFitTheirTypes(t *testing.T) {
	for d := infer.Bool; d <= infer.BF16; d++ {
		c := &kserve.ModelConfig{Name: "m", Input: []*kserve.ModelInput{{Name: "X", DataType: kserve.DataType(d), Dims: []int64{7, 3}}}}
		for _, fill := range []string{random, zero} {
			s, err := makeSamples(&options{batch: 1, textLength: 5, inputs: map[string]string{"X": fill}}, c)
			if err != nil {
				t.Errorf("%s: %v", d, err)
				continue
			}
			if d == infer.Bool && slices.Max(s[0][0].Data) > 1 {
				t.Errorf("%s: got %v", d, s[0][0].Data)
			}
			if zeros := bytes.Count(s[0][0].Data, []byte{0}) == len(s[0][0].Data); zeros != (fill == zero) && d != infer.Bytes {
				t.Errorf("%s filled with %s: got %v", d, fill, s[0][0].Data)
			}
		}
	}
}
