package form

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	_ "image/gif" // image.Decode knows it
	_ "image/jpeg"
	"image/png"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

const webp = "image/webp"

// pictureType is the media type of a raster image by its first bytes, "" of all else.
func pictureType(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif"
	case len(data) > 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return webp
	}
	return ""
}

// dataURL is a picture in a URL.
func dataURL(kind string, data []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// maxPixels bounds the pictures that are decoded or encoded here.
const maxPixels = 8 << 20

// decodedBytes is what a decoder takes for a pixel at most.
const decodedBytes = 12

// layout says where a tensor of pixels has its dimensions.
type layout struct {
	height, width, channels int64
	first                   bool // the channels stand first
}

// pixels reports how a shape may be that of a picture, whose height and width may be open.
// Leading dimensions of 1 are a batch.
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

// readPicture makes a tensor of the pixels of the file, scaled to the shape. Dimensions of -1 in
// the configuration are the picture's own.
func (f *Field) readPicture(t *infer.Tensor, room *Room) error {
	size, _, err := image.DecodeConfig(bytes.NewReader(f.File))
	if err != nil {
		return f.refuse("the file looks like a picture and is none: %v", err)
	}
	if int64(size.Width)*int64(size.Height) > maxPixels {
		return f.refuse("the picture has %d x %d pixels, at most %d are read", size.Width, size.Height, maxPixels)
	}
	wanted := slices.Clone(f.Dims)
	if len(wanted) > 3 && wanted[0] == -1 { // the batch
		wanted[0] = 1
	}
	l, ok := pixels(wanted)
	if !ok || l.height == 0 || l.width == 0 {
		return f.refuse("shape %s is no picture's: want height, width and 1, 3 or 4 channels, or the channels first", f.DimsText())
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
	if err := f.take(t, n, room); err != nil {
		return err
	}
	if err := room.Scratch(decodedBytes * int64(size.Width) * int64(size.Height)); err != nil {
		return err
	}
	picture, _, err := image.Decode(bytes.NewReader(f.File))
	if err != nil {
		return f.refuse("read the picture: %v", err)
	}
	f.fill(t.Data, picture, l)
	return nil
}

// fill writes the pixels of a picture, the nearest one for each place.
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
				place := dst[i*size : (i+1)*size]
				switch f.Type {
				case infer.FP16, infer.FP32, infer.FP64, infer.BF16:
					putFloat(f.Type, place, float64(values[k]))
				default:
					putUint(place, uint64(values[k]))
				}
			}
		}
	}
}

// pictureOf returns the PNG of a UINT8 tensor of pixels as a URL, "" of all else.
func pictureOf(d infer.DataType, shape []int64, data []byte) string {
	l, ok := pixels(shape)
	if d != infer.Uint8 || !ok || l.height < 2 || l.width < 2 || l.height > maxPixels || l.width > maxPixels || l.height*l.width > maxPixels ||
		int64(len(data)) != l.height*l.width*l.channels {
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
	return dataURL("image/png", []byte(b.String()))
}
