package values_test

import (
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/values"
)

// FuzzJSONData decodes arbitrary JSON arrays as tensor data of each type.
func FuzzJSONData(f *testing.F) {
	for _, seed := range []string{`["a","\u00e9"]`, "[1,[2,3],-4]", "[true,[false]]", "[1.5e3,[NaN]]", "[18446744073709551615]", `[{"a":[1]}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := new(jsontext.Scanner).Scan(nil, text)
		if err != nil {
			return
		}
		decodeArrays(t, doc.Root())
	})
}

// decodeArrays decodes each array in a value, at any depth.
func decodeArrays(t *testing.T, v jsontext.Value) {
	for m := v.Members(); ; {
		_, value, ok := m.Next()
		if !ok {
			break
		}
		decodeArrays(t, value)
	}
	elements, err := v.Elements()
	if err != nil {
		_, _ = values.ReadParameter(v, "")
		return
	}
	for value, ok := elements.Next(); ok; value, ok = elements.Next() {
		decodeArrays(t, value)
	}
	walk, err := v.Leaves()
	if err != nil {
		t.Fatal(err)
	}
	size, err := values.StringsSize(walk)
	if got := int64(0); err == nil {
		if got = int64(len(values.ReadStrings(walk, nil))); got != size {
			t.Fatalf("strings take %d bytes, want %d", got, size)
		}
	}
	for d := infer.Bool; d <= infer.FP64; d++ {
		if d != infer.FP16 {
			_ = values.ReadNumbers(walk, d, v.MostLeaves(), nil)
		}
	}
}
