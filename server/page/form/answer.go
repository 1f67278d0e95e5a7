package form

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
)

// Bounds of the parts of an answer that are kept and shown.
const (
	MostResponses = 64
	mostElements  = 1000     // numbers of an output, and texts
	mostText      = 16 << 10 // bytes of one text
	// mostTexts bounds the errors and parameters of all responses, in bytes.
	mostTexts = 1 << 20
	// mostParameters bounds the shown parameters of a response.
	mostParameters = 100
	mostHex        = 256     // bytes of one binary element
	mostPicture    = 6 << 20 // bytes of one picture
	// MostKept bounds the copied bytes of one answer.
	MostKept = 13 << 20
	// spared is the part of MostKept that whole tensors of numbers leave for the first elements of
	// others, in bytes.
	spared = 1 << 20
)

// Collector collects the responses to one request. Enough, which may be nil, is called once when
// more come than are shown.
type Collector struct {
	Enough func()

	responses []kept
	more      int // responses that are not shown
	room      int // of MostKept
	texts     int // of mostTexts
	enough    bool
}

// kept is the copied part of a response.
type kept struct {
	code, err  string
	parameters []Named
	outputs    []infer.Tensor // Data is the shown part
	sizes      []int64
}

// Take is an infer.Sender.
func (c *Collector) Take(r *infer.Response) {
	defer r.Release()
	if r.Empty {
		return
	}
	if len(c.responses) == MostResponses {
		if c.more++; !c.enough {
			c.enough = true
			if c.Enough != nil {
				c.Enough()
			}
		}
		return
	}
	if c.responses == nil {
		c.room = MostKept
	}
	k := kept{parameters: make([]Named, 0, min(len(r.Parameters), mostParameters))}
	if r.Err != nil {
		k.code, k.err = r.Err.Code.String(), c.text(r.Err.Message)
	}
	for _, p := range r.Parameters[:cap(k.parameters)] {
		k.parameters = append(k.parameters, Named{c.text(p.Name), c.text(parameterText(p))}) // bound: mostParameters
	}
	for i := range r.Outputs {
		out := r.Outputs[i]
		size := int64(len(out.Data))
		n := min(size, c.shown(&out), int64(c.room))
		c.room -= int(n)
		copied := infer.Tensor{Name: out.Name, DataType: out.DataType, Shape: out.Shape, Data: append([]byte(nil), out.Data[:n]...)} // bound: MostKept
		k.outputs, k.sizes = append(k.outputs, copied), append(k.sizes, size)                                                        // bound: the outputs of the config
	}
	c.responses = append(c.responses, k) // bound: MostResponses
}

// text copies a text, or its beginning if it is long.
func (c *Collector) text(s string) string {
	s = strings.Clone(infer.Cut(s, max(min(mostText, mostTexts-c.texts), 8)))
	c.texts += len(s)
	return s
}

// shown returns how many bytes of an output may be shown: as a picture, a file, or elements.
func (c *Collector) shown(out *infer.Tensor) int64 {
	if size := out.DataType.Size(); size > 0 {
		all := int64(len(out.Data))
		if _, ok := drawn(out.DataType, out.Shape); (all <= mostFile || ok && all <= mostPicture) && all <= int64(c.room-spared) {
			return all
		}
		return int64(mostElements * size)
	}
	return mostPicture
}

// Response is one response for the page.
type Response struct {
	Number     int
	Code       string // of an error
	Error      string
	Parameters []Named
	Outputs    []Output
}

// Named is a parameter.
type Named struct{ Name, Value string }

// Output is one output for the page.
type Output struct {
	Name, Type, Shape string
	Size              int64
	Rows              string // numbers
	Elements          []Element
	Picture           string // a data URL of a raster image
	Floats            bool   // the image is of floats, which may not be an image
	File              File   // of numbers
	Left              int64  // elements, or bytes of BYTES, that are not shown
	Broken            bool   // not a valid tensor of its type
}

// Element is one element of a BYTES tensor.
type Element struct {
	Size    int
	Text    string
	Hex     string
	Picture string // a data URL of a raster image
	Sound   string // a data URL
	File    File   // if the text is not complete
	Cut     bool   // there is more
}

// Answer returns the responses, and the number of further ones. The request must have ended.
func (c *Collector) Answer() (list []Response, more int) {
	for i, k := range c.responses {
		r := Response{Number: i + 1, Code: k.code, Error: k.err, Parameters: k.parameters}
		for j := range k.outputs {
			r.Outputs = append(r.Outputs, output(&k.outputs[j], k.sizes[j])) // bound: the outputs of the config
		}
		list = append(list, r) // bound: MostResponses
	}
	return list, c.more
}

func parameterText(p infer.Parameter) string {
	switch p.Kind {
	case infer.IntParameter:
		return strconv.FormatInt(p.Int, 10)
	case infer.BoolParameter:
		return strconv.FormatBool(p.Bool)
	case infer.DoubleParameter:
		return strconv.FormatFloat(p.Double, 'g', -1, 64)
	default:
		return p.String
	}
}

// bound: mostElements, mostFile and mostPicture
func output(t *infer.Tensor, size int64) Output {
	o := Output{Name: t.Name, Type: t.DataType.String(), Shape: infer.ShapeString(t.Shape), Size: size}
	one := int64(t.DataType.Size())
	if one == 0 {
		o.elements(t.Data, size)
		return o
	}
	if int64(len(t.Data)) == size {
		o.Picture = pictureOf(t.DataType, t.Shape, t.Data)
		o.Floats = o.Picture != "" && t.DataType != infer.Uint8
	}
	n := min(int64(len(t.Data))/one, mostElements)
	o.Rows, o.Left = rows(t, int(n)), size/one-n
	if want, ok := infer.ByteSize(t.DataType, t.Shape); !ok || want != size {
		o.Broken = true
	} else if size <= mostFile && int64(len(t.Data)) == size {
		o.File = tensorFile(t)
	}
	return o
}

// elements reads a BYTES tensor of size bytes, which begins with data.
//
// bound: mostElements
func (o *Output) elements(data []byte, size int64) {
	for len(data) >= 4 && len(o.Elements) < mostElements {
		n := int64(binary.LittleEndian.Uint32(data))
		if n > size-4 {
			o.Broken = true
			break
		}
		data, size = data[4:], size-4
		have := data[:min(n, int64(len(data)))]
		o.Elements = append(o.Elements, element(fmt.Sprintf("%s-%d", o.Name, len(o.Elements)), have, int(n)))
		data, size = data[len(have):], size-n
	}
	o.Left = size
}

// element shows an element of size bytes, which begins with data. Name is the name of its file,
// without an extension.
//
// bound: mostText, mostFile and mostPicture
func element(name string, data []byte, size int) Element {
	e := Element{Size: size, Cut: len(data) < size}
	kind, ending := mediaType(data)
	whole := len(data) == size
	text := data
	if len(text) > mostText {
		text, e.Cut = cutText(text[:mostText]), true
	}
	switch {
	case kind != "" && whole:
		e.Cut = false
		url := dataURL(kind, data)
		if strings.HasPrefix(kind, "audio/") {
			e.Sound = url
		} else {
			e.Picture = url
		}
		if size <= mostFile {
			e.File = File{name + ending, url}
		}
	case readable(text):
		e.Text = string(text)
		if e.Cut && whole && size <= mostFile {
			e.File = File{name + ".txt", dataURL("application/octet-stream", data)}
		}
	default:
		shown := data[:min(len(data), mostHex)]
		e.Hex, e.Cut = hex.Dump(shown), len(shown) < size
		if whole && size <= mostFile {
			e.File = File{name + ".bin", dataURL("application/octet-stream", data)}
		}
	}
	return e
}

// cutText removes half a character from the end.
func cutText(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if utf8.RuneStart(text[len(text)-i]) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// readable reports whether bytes are text: UTF-8 without control characters other than line breaks,
// tabs and terminal colours.
func readable(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != 0x1b {
			return false
		}
	}
	return true
}

// rows formats the first n elements of a tensor, a line for each row, and a blank line between
// planes.
//
// bound: mostElements
func rows(t *infer.Tensor, n int) string {
	var b strings.Builder
	size := t.DataType.Size()
	row := 16
	if last := len(t.Shape) - 1; last >= 0 && t.Shape[last] > 0 && t.Shape[last] <= 64 {
		row = int(t.Shape[last])
	}
	plane := 0
	if rank := len(t.Shape); rank > 2 && t.Shape[rank-1] == int64(row) && t.Shape[rank-2] > 0 && t.Shape[rank-2] <= mostElements {
		plane = row * int(t.Shape[rank-2])
	}
	for i := range n {
		switch {
		case i == 0:
		case plane > 0 && i%plane == 0:
			b.WriteString("\n\n")
		case i%row == 0:
			b.WriteByte('\n')
		default:
			b.WriteString("  ")
		}
		b.WriteString(number(t.DataType, t.Data[i*size:(i+1)*size]))
	}
	return b.String()
}

func number(d infer.DataType, data []byte) string {
	switch {
	case d == infer.FP64:
		return floatText(d.Float(data), 64)
	case d.IsFloat():
		return floatText(d.Float(data), 32)
	default:
		return string(d.AppendNumber(nil, data)) // bound: a number
	}
}

func floatText(v float64, bits int) string {
	text := strconv.FormatFloat(v, 'g', -1, bits)
	if strings.Trim(text, "-0123456789") == "" {
		text += ".0"
	}
	return text
}
