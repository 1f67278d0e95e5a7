package tensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
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
	switch t.DataType {
	case infer.FP16, infer.FP32, infer.FP64, infer.BF16:
		return 128
	case infer.Bool:
		return 64
	}
	return 1
}

func AppendElement(data, element []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(element))), element...)
}

// appendNumber appends v as an element, or whole for integers of more than 53 bits.
func appendNumber(t *infer.Tensor, v float64, whole uint64) error {
	le := binary.LittleEndian
	integer := uint64(int64(v))
	if whole != 0 {
		integer = whole
	}
	switch t.DataType {
	case infer.Bool, infer.Uint8, infer.Int8:
		t.Data = append(t.Data, byte(integer))
	case infer.Uint16, infer.Int16:
		t.Data = le.AppendUint16(t.Data, uint16(integer))
	case infer.Uint32, infer.Int32:
		t.Data = le.AppendUint32(t.Data, uint32(integer))
	case infer.Uint64, infer.Int64:
		t.Data = le.AppendUint64(t.Data, integer)
	case infer.FP32:
		t.Data = le.AppendUint32(t.Data, math.Float32bits(float32(v)))
	case infer.FP64:
		t.Data = le.AppendUint64(t.Data, math.Float64bits(v))
	case infer.BF16:
		t.Data = le.AppendUint16(t.Data, infer.ToBF16(float32(v)))
	case infer.FP16:
		t.Data = le.AppendUint16(t.Data, infer.ToFP16(float32(v)))
	default:
		return fmt.Errorf("type %s has no numbers", t.DataType)
	}
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
