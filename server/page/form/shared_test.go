package form

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

// Shown returns the text with which an output is shown.
func Shown(t infer.Tensor) string {
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

// Chequered returns a PNG of 4 x 2 pixels, alternately red and half-transparent blue.
func Chequered(t *testing.T) []byte {
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

// bytesOf returns the data of a BYTES tensor.
func bytesOf(elements ...string) []byte {
	var data []byte
	for _, e := range elements {
		n := len(e)
		data = append(append(data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)), e...)
	}
	return data
}

// counted is a Memory that counts its references.
type counted struct{ n int }

func (m *counted) Retain() { m.n++ }

func (m *counted) Release() { m.n-- }

// floats returns the data of an FP32 tensor.
func floats(values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
