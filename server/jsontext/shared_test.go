package jsontext

import (
	"errors"
	"testing"
)

// walkJSON visits everything in a value.
func walkJSON(t *testing.T, v Value) {
	if end := v.end(); end <= v.at || end > len(v.t.buf) {
		t.Fatalf("value at %d ends at %d of %d", v.at, end, len(v.t.buf))
	}
	for m := v.Members(); ; {
		name, value, ok := m.Next()
		if !ok {
			break
		}
		_ = name.String()
		walkJSON(t, value)
	}
	_, _ = v.Int()
	_, _ = v.Float()
	elements, err := v.Elements()
	if err != nil {
		return
	}
	for value, ok := elements.Next(); ok; value, ok = elements.Next() {
		walkJSON(t, value)
	}
	for _, read := range []func(l *Leaves) error{
		func(l *Leaves) error { _, err := l.Bool(); return err },
		func(l *Leaves) error { _, err := l.Int(); return err },
		func(l *Leaves) error { _, err := l.Uint(); return err },
		func(l *Leaves) error { _, err := l.Float(); return err },
		readText,
	} {
		leaves, err := v.Leaves()
		if err != nil {
			t.Fatalf("an array has elements and no leaves: %v", err)
		}
		n := int64(0)
		for leaves.Next() {
			if n++; n > v.MostLeaves() {
				t.Fatalf("got leaf %d, want at most %d", n, v.MostLeaves())
			}
			if read(&leaves) != nil {
				break
			}
		}
	}
}

func readText(l *Leaves) error {
	s, err := l.Text()
	if err == nil && len(s.AppendTo(nil)) != s.Len() {
		return errors.New("the length of a string is not what is appended")
	}
	return err
}
