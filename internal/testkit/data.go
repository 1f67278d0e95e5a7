package testkit

import (
	"encoding/binary"
	"slices"

	"github.com/nereid-serving/nereid/panics"
)

// Pattern returns n bytes that differ from their neighbours.
func Pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// TensorData returns the data of a tensor with these elements, which are numbers or strings.
func TensorData[T any](elements ...T) (data []byte) {
	for _, element := range elements {
		if text, ok := any(element).(string); ok {
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(text))), text...)
			continue
		}
		var err error
		if data, err = binary.Append(data, binary.LittleEndian, element); err != nil {
			panic(err)
		}
	}
	return data
}

// Panics returns the number of panics recovered so far in the given places, or anywhere.
func Panics(places ...panics.Where) (n uint64) {
	panics.Counts(func(where panics.Where, count func() uint64) {
		if len(places) == 0 || slices.Contains(places, where) {
			n += count()
		}
	})
	return n
}
