package tensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

// mostBytes limits the size of a tensor, because a mistyped dimension should not use up all memory.
const mostBytes = 4 << 30

// Check compares bytes and shape.
func Check(t *infer.Tensor) error {
	if t.DataType == infer.Bytes {
		want, ok := infer.Elements(t.Shape)
		found := int64(0)
		for rest := t.Data; len(rest) >= 4; found++ {
			rest = rest[min(len(rest), 4+int(binary.LittleEndian.Uint32(rest))):]
		}
		if !ok || found != want {
			return fmt.Errorf("it has %d elements, want %d for shape %s", found, want, infer.ShapeString(t.Shape))
		}
		return nil
	}
	if want, ok := infer.ByteSize(t.DataType, t.Shape); !ok || want != int64(len(t.Data)) {
		return fmt.Errorf("it has %d bytes, want %d for shape %s of %s", len(t.Data), want, infer.ShapeString(t.Shape), t.DataType)
	}
	return nil
}

// Fill generates the values of a tensor with a type and a shape. Random values are small, so that
// they work as indices and do not overflow in sums.
func Fill(t *infer.Tensor, zeros bool, textLength int) error {
	n, ok := infer.Elements(t.Shape)
	size := int64(max(t.DataType.Size(), 4+textLength))
	if !ok || n > mostBytes/size {
		return fmt.Errorf("shape %s has more than %d bytes", infer.ShapeString(t.Shape), int64(mostBytes))
	}
	if t.DataType != infer.Bytes {
		t.Data = make([]byte, 0, n*int64(t.DataType.Size()))
		if zeros {
			t.Data = t.Data[:cap(t.Data)]
			return nil
		}
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for range n {
		if t.DataType == infer.Bytes {
			var text []byte
			for range textLength {
				if !zeros {
					text = append(text, letters[rand.IntN(len(letters))])
				}
			}
			t.Data = AppendElement(t.Data, text)
			continue
		}
		if err := appendNumber(t, float64(rand.IntN(128))/scale(t), 0); err != nil {
			return err
		}
	}
	return nil
}

// scale returns a factor that brings random numbers below 128 into the usual range of a type.
func scale(t *infer.Tensor) float64 {
	switch {
	case t.DataType.IsFloat():
		return 128
	case t.DataType == infer.Bool:
		return 64
	}
	return 1
}

func AppendElement(data, element []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(element))), element...)
}

// appendNumber appends v as an element, or whole for integers of more than 53 bits.
func appendNumber(t *infer.Tensor, v float64, whole uint64) error {
	d, at := t.DataType, len(t.Data)
	if d.Size() == 0 {
		return fmt.Errorf("type %s has no numbers", d)
	}
	bits := uint64(int64(v))
	switch {
	case d.IsFloat():
		bits = d.FloatBits(v)
	case whole != 0:
		bits = whole
	}
	t.Data = append(t.Data, make([]byte, d.Size())...)
	infer.PutBits(t.Data[at:], bits)
	return nil
}

// Read appends the elements of a flat or nested JSON array.
func Read(t *infer.Tensor, array []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(array))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("its values: %w", err)
	}
	return appendValue(t, content)
}

// appendValue appends the elements of nested arrays.
func appendValue(t *infer.Tensor, value any) error {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			if err := appendValue(t, element); err != nil {
				return err
			}
		}
		return nil
	case string:
		if t.DataType == infer.Bytes {
			t.Data = AppendElement(t.Data, []byte(v))
			return nil
		}
	case bool:
		if t.DataType == infer.Bool {
			return appendNumber(t, map[bool]float64{true: 1}[v], 0)
		}
	case json.Number:
		if t.DataType == infer.Bytes {
			break
		}
		f, err := v.Float64()
		if err != nil {
			return err
		}
		whole, err := strconv.ParseUint(v.String(), 10, 64)
		if err != nil {
			if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
				whole = uint64(n)
			}
		}
		return appendNumber(t, f, whole)
	}
	return fmt.Errorf("%v is not a value of type %s", value, t.DataType)
}
