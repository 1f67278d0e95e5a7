package form

import (
	"bytes"
	"image"
	"image/color"
	_ "image/gif" // for image.Decode
	_ "image/jpeg"
	"image/png"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// maxPixels bounds the pictures that are decoded or encoded here.
const maxPixels = 8 << 20

// decodedBytes bounds a decoder's memory for a element.
const decodedBytes = 12

// layout has the dimensions of a tensor of pixels.
type layout struct {
	height, width, channels int64
	first                   bool // the channels come first
}

// pixels returns the layout of a shape that may be a picture's, whose height and width may be
// variable. Leading dimensions of 1 are a batch.
func pixels(shape []int64) (l layout, ok bool) {
	for len(shape) > 3 && shape[0] == 1 {
		shape = shape[1:]
	}
	if len(shape) != 3 {
		return l, false
	}
	isColour := func(d int64) bool { return d == 1 || d == 3 || d == 4 }
	switch {
	case isColour(shape[2]):
		return layout{shape[0], shape[1], shape[2], false}, true
	case isColour(shape[0]):
		return layout{shape[1], shape[2], shape[0], true}, true
	}
	return l, false
}

// readPicture reads the pixels of the file into a tensor, scaled to the shape. Dimensions of -1 in
// the configuration are the picture's own.
func (f *Field) readPicture(t *infer.Tensor, memory *TensorMemory) error {
	size, _, err := image.DecodeConfig(bytes.NewReader(f.File))
	if err != nil {
		return f.refuse("the file looks like a picture but is not one: %v", err)
	}
	if int64(size.Width)*int64(size.Height) > maxPixels {
		return f.refuse("the picture has %d x %d pixels, at most %d are read", size.Width, size.Height, maxPixels)
	}
	wanted := slices.Clone(f.Dims)          // bound: the dimensions of the config
	if len(wanted) > 3 && wanted[0] == -1 { // the batch
		wanted[0] = 1
	}
	l, ok := pixels(wanted)
	if !ok || l.height == 0 || l.width == 0 {
		return f.refuse("shape %s is not that of a picture: want height, width and 1, 3 or 4 channels, or the channels first", f.DimsText())
	}
	if l.height < 0 {
		l.height = int64(size.Height)
	}
	if l.width < 0 {
		l.width = int64(size.Width)
	}
	t.Shape = wanted
	at := len(wanted) - 3
	if l.first {
		at++
	}
	t.Shape[at], t.Shape[at+1] = l.height, l.width
	n, ok := infer.ByteSize(f.Type, t.Shape)
	if !ok || n/int64(f.Type.Size()) > 4*maxPixels {
		return f.refuse("shape %s has more than %d elements", infer.ShapeString(t.Shape), 4*maxPixels)
	}
	if err := f.take(t, n, memory); err != nil {
		return err
	}
	if err := memory.Charge.Take(budget.JSON, decodedBytes*int64(size.Width)*int64(size.Height)); err != nil {
		return err
	}
	picture, _, err := image.Decode(bytes.NewReader(f.File))
	if err != nil {
		return f.refuse("read the picture: %v", err)
	}
	f.fill(t.Data, picture, l)
	return nil
}

// fill writes the pixels of a picture, scaled to the nearest ones.
func (f *Field) fill(dst []byte, picture image.Image, l layout) {
	size := int64(f.Type.Size())
	from := picture.Bounds()
	for y := range l.height {
		for x := range l.width {
			at := picture.At(from.Min.X+int(x*int64(from.Dx())/l.width), from.Min.Y+int(y*int64(from.Dy())/l.height))
			c := color.NRGBAModel.Convert(at).(color.NRGBA)
			values := [4]byte{c.R, c.G, c.B, c.A}
			if l.channels == 1 {
				values[0] = color.GrayModel.Convert(at).(color.Gray).Y
			}
			for k := range l.channels {
				i := (y*l.width+x)*l.channels + k
				if l.first {
					i = (k*l.height+y)*l.width + x
				}
				element := dst[i*size : (i+1)*size]
				bits := uint64(values[k])
				if f.Type.IsFloat() {
					bits = f.Type.FloatBits(float64(values[k]))
				}
				infer.PutBits(element, bits)
			}
		}
	}
}

// leastFloats is the least height and width of a tensor of floats that is shown as a picture;
// smaller ones are numbers.
const leastFloats = 8

// drawn returns the layout of a tensor that may be shown as a picture. Floats may be without
// channels, too.
func drawn(d infer.DataType, shape []int64) (l layout, ok bool) {
	least := int64(2)
	switch {
	case d == infer.Uint8:
		l, ok = pixels(shape)
	case d.IsFloat():
		least = leastFloats
		for len(shape) > 2 && shape[0] == 1 {
			shape = shape[1:]
		}
		if l, ok = pixels(shape); len(shape) == 2 {
			l, ok = layout{shape[0], shape[1], 1, false}, true
		}
	}
	return l, ok && min(l.height, l.width) >= least && max(l.height, l.width) <= maxPixels && l.height*l.width <= maxPixels
}

// samples returns the channels of a tensor as bytes: floats from 0 to 1 scaled, others from 0 to
// 255 unchanged. It returns nil for other values.
func samples(d infer.DataType, data []byte) []byte {
	if d == infer.Uint8 {
		return data
	}
	size := d.Size()
	scale := 255.0
	for i := 0; i < len(data); i += size {
		switch v := d.Float(data[i:]); {
		case !(v >= 0 && v <= 255): // or NaN
			return nil
		case v > 1:
			scale = 1
		}
	}
	values := make([]byte, len(data)/size) // bound: mostPicture
	for i := range values {
		values[i] = byte(d.Float(data[i*size:])*scale + 0.5)
	}
	return values
}

// pictureOf returns the PNG of a tensor of pixels as a URL, or "".
func pictureOf(d infer.DataType, shape []int64, data []byte) string {
	l, ok := drawn(d, shape)
	if !ok || int64(len(data)) != l.height*l.width*l.channels*int64(d.Size()) {
		return ""
	}
	if data = samples(d, data); data == nil {
		return ""
	}
	picture := image.NewNRGBA(image.Rect(0, 0, int(l.width), int(l.height)))
	for y := range l.height {
		for x := range l.width {
			var v [4]byte
			for k := range l.channels {
				if l.first {
					v[k] = data[(k*l.height+y)*l.width+x]
				} else {
					v[k] = data[(y*l.width+x)*l.channels+k]
				}
			}
			switch l.channels {
			case 1:
				v = [4]byte{v[0], v[0], v[0], 255}
			case 3:
				v[3] = 255
			}
			copy(picture.Pix[4*(y*l.width+x):], v[:])
		}
	}
	var b strings.Builder
	if err := png.Encode(&b, picture); err != nil {
		return ""
	}
	return dataURL("image/png", []byte(b.String())) // bound: mostPicture pixels
}
