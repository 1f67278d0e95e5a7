package form

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
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

// counted is a Memory that counts its references.
type counted struct{ n int }

func (m *counted) Retain() { m.n++ }

func (m *counted) Release() { m.n-- }
