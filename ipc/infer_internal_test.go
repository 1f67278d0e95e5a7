package ipc

import (
	"bytes"
	"testing"
)

func TestGoldenWordsAreDecoded(t *testing.T) {
	for name, test := range map[string]struct {
		kind Kind
		want uint32
	}{"demand": {Demand, 16}, "stop_infer": {StopInfer, StopForget}} {
		frame, body := Golden(t, name, test.kind, 0, 9)
		n, err := ParseWord(test.kind, body)
		if err != nil || n != test.want {
			t.Errorf("%s: got %d, error %v, want %d", name, n, err, test.want)
		}
		if again := Encode(test.kind, 0, 9, le.AppendUint64(nil, uint64(n))); !bytes.Equal(again, frame) {
			t.Errorf("%s encoded again: got %x, want %x", name, again, frame)
		}
	}
}

// TestParseInferRefuses checks that ParseInfer rejects a valid request after any single change.
func TestParseInferRefuses(t *testing.T) {
	_, good := Golden(t, "infer", Infer, 0, 9)
	name := InferSize
	head := name + Align8(len("modèle"))
	for what, change := range map[string]func([]byte) []byte{
		"cut before its head":    func(b []byte) []byte { return b[:InferSize-1] },
		"cut in the name":        func(b []byte) []byte { return b[:name+3] },
		"cut in the request":     func(b []byte) []byte { return b[:head+RequestSize-1] },
		"cut in descriptors":     func(b []byte) []byte { return b[:head+RequestSize+10] },
		"unknown flag":           func(b []byte) []byte { b[16] |= 8; return b },
		"unknown memory":         func(b []byte) []byte { b[28] = 3; return b },
		"name that is not UTF-8": func(b []byte) []byte { b[name] = 0xff; return b },
		"name longer than all":   func(b []byte) []byte { le.PutUint32(b[24:], 1<<31); return b },
		"id longer than all":     func(b []byte) []byte { le.PutUint32(b[head+32:], 1<<31); return b },
		"more inputs":            func(b []byte) []byte { le.PutUint16(b[head+28:], 0xffff); return b },
		"more outputs":           func(b []byte) []byte { le.PutUint16(b[head+30:], 0xfffe); return b },
		"negative dimension":     func(b []byte) []byte { b[head+RequestSize+DescriptorSize+7] = 0xff; return b },
		"unknown region":         func(b []byte) []byte { b[head+RequestSize+4] = 3; return b },
	} {
		var got InferBody
		if err := ParseInfer(change(bytes.Clone(good)), &got); err == nil {
			t.Errorf("%s: got %+v, want a ProtocolError", what, got)
		}
	}
}
