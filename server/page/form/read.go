package form

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

// TensorMemory allocates the tensors of a request and charges for them.
type TensorMemory struct {
	// Limit bounds a tensor, in bytes.
	Limit int64
	// Tensor gives a tensor n bytes of memory, or fails.
	Tensor func(t *infer.Tensor, n int) error
	// Charge is for memory beside the tensors, until the request ends.
	Charge *budget.Charge
}

// Read makes the tensor of a field that is not empty. The caller releases it.
func (f *Field) Read(memory *TensorMemory) (t infer.Tensor, err error) {
	t = infer.Tensor{Name: f.Name, DataType: f.Type}
	var open int
	if t.Shape, open, err = f.parseShape(); err != nil {
		return t, err
	}
	switch {
	case f.Type == infer.Bytes:
		err = f.readBytes(&t, open, memory)
	case f.File != nil:
		err = f.readFile(&t, open, memory)
	default:
		err = f.readNumbers(&t, open, memory)
	}
	return t, err
}

// take gives t memory for n bytes.
func (f *Field) take(t *infer.Tensor, n int64, memory *TensorMemory) error {
	if n > memory.Limit {
		return f.refuse("the tensor has %d bytes, at most %d are allowed. --http-max-input-size changes the limit", n, memory.Limit)
	}
	return memory.Tensor(t, int(n))
}

// settle computes the open dimension of the shape of t, which has n elements.
func (f *Field) settle(t *infer.Tensor, open int, n int64) error {
	if open >= 0 {
		t.Shape[open] = 1
		rest, ok := infer.Elements(t.Shape)
		if !ok || rest == 0 || n%rest != 0 {
			return f.refuse("%d values do not fill a tensor of shape [%s]", n, f.Shape)
		}
		t.Shape[open] = n / rest
	}
	if want, ok := infer.Elements(t.Shape); !ok || want != n {
		return f.refuse("shape %s needs %d values, but there are %d", infer.ShapeString(t.Shape), want, n)
	}
	return nil
}

// readNumbers reads values of a type of fixed size. A single value fills the tensor.
func (f *Field) readNumbers(t *infer.Tensor, open int, memory *TensorMemory) error {
	n, first := int64(0), ""
	for word := range separated(f.Values) {
		if n++; n == 1 {
			first = word
		}
	}
	size := int64(f.Type.Size())
	if size == 0 {
		return f.refuse("the configuration has no data type for it")
	}
	if n == 1 && open < 0 {
		all, ok := infer.ByteSize(f.Type, t.Shape)
		if !ok {
			return f.refuse("shape %s has more elements than a tensor can", infer.ShapeString(t.Shape))
		}
		var one [8]byte
		if err := f.put(one[:size], first); err != nil {
			return err
		}
		if err := f.take(t, all, memory); err != nil {
			return err
		}
		for at := int64(0); at < all; at += size {
			copy(t.Data[at:], one[:size])
		}
		return nil
	}
	if err := f.settle(t, open, n); err != nil {
		return err
	}
	if err := f.take(t, n*size, memory); err != nil {
		return err
	}
	dst := t.Data
	for word := range separated(f.Values) {
		if err := f.put(dst[:size], word); err != nil {
			return err
		}
		dst = dst[size:]
	}
	return nil
}

// put writes one value.
func (f *Field) put(dst []byte, word string) error {
	u, err := f.Type.ParseNumber(strings.ToLower(word)) // bound: charged with the form
	if err != nil {
		return f.refuse("%.40q is not a value of type %s", word, f.Type)
	}
	infer.PutBits(dst, u)
	return nil
}

// readBytes reads texts, or the file as the only element. It reads them twice, since a list of them
// would take many times the memory of the text.
func (f *Field) readBytes(t *infer.Tensor, open int, memory *TensorMemory) error {
	// The text with other line breaks, as bytes for each pass, and the longest JSON element.
	if err := memory.Charge.Take(budget.JSON, 5*int64(len(f.Values))); err != nil {
		return err
	}
	each := f.elements(t.Shape, open, memory)
	n, size := int64(0), int64(0)
	err := each(func(element []byte) {
		n++
		size += 4 + int64(len(element))
	})
	if err != nil {
		return err
	}
	if err := f.settle(t, open, n); err != nil {
		return err
	}
	if err := f.take(t, size, memory); err != nil {
		return err
	}
	dst := t.Data
	return each(func(element []byte) {
		binary.LittleEndian.PutUint32(dst, uint32(len(element)))
		dst = dst[4+copy(dst[4:], element):]
	})
}

// elements returns a function that visits the elements of a BYTES tensor, which are valid during
// the visit.
//
// bound: charged by readBytes
func (f *Field) elements(shape []int64, open int, memory *TensorMemory) func(visit func([]byte)) error {
	if f.File != nil {
		return single(f.File)
	}
	text := strings.ReplaceAll(f.Values, "\r\n", "\n") // as browsers send lines
	if n, ok := infer.Elements(shape); open < 0 && ok && n == 1 {
		return single([]byte(text))
	}
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "[") {
		return func(visit func([]byte)) error { return f.visitJSON([]byte(trimmed), memory, visit) }
	}
	return func(visit func([]byte)) error {
		for line := range bytes.SplitSeq([]byte(strings.TrimSuffix(text, "\n")), []byte("\n")) {
			visit(line)
		}
		return nil
	}
}

func single(element []byte) func(visit func([]byte)) error {
	return func(visit func([]byte)) error {
		visit(element)
		return nil
	}
}

// visitJSON visits the texts in nested arrays.
func (f *Field) visitJSON(text []byte, memory *TensorMemory, visit func([]byte)) error {
	doc, err := new(jsontext.Scanner).Scan(memory.Charge, text)
	if refused := (*infer.Error)(nil); errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return f.refuse("the values begin with a bracket but are not a JSON array: %v", err)
	}
	walk, err := doc.Root().Leaves()
	if err != nil {
		return f.refuse("the values are not a JSON array: %v", err)
	}
	var element []byte
	for {
		if !walk.Next() {
			return nil
		}
		leaf, err := walk.Text()
		if err != nil {
			return f.refuse("the array has values other than strings: %v", err)
		}
		element = leaf.AppendTo(element[:0]) // bound: charged by readBytes
		visit(element)
	}
}

// readFile reads a picture, or the bytes of the tensor.
func (f *Field) readFile(t *infer.Tensor, open int, memory *TensorMemory) error {
	if kind, _ := mediaType(f.File); strings.HasPrefix(kind, "image/") && kind != webp {
		return f.readPicture(t, memory)
	}
	size := int64(f.Type.Size())
	if size == 0 || int64(len(f.File))%size != 0 {
		return f.refuse("the file has %d bytes, which is not a whole number of elements of type %s", len(f.File), f.Type)
	}
	if err := f.settle(t, open, int64(len(f.File))/size); err != nil {
		return err
	}
	if err := f.take(t, int64(len(f.File)), memory); err != nil {
		return err
	}
	copy(t.Data, f.File)
	return nil
}
