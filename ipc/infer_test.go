package ipc_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
)

// TestGoldenInferIsDecoded decodes a golden INFER frame from the stub.
func TestGoldenInferIsDecoded(t *testing.T) {
	_, body := golden(t, "infer", ipc.Infer, 0, 9)
	var got ipc.InferBody
	if err := ipc.ParseInfer(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Batch != 5 || got.Version != 3 || got.Flags != ipc.InferStream|ipc.InferHolding || got.Demand != 32 || got.Memory != 2 || string(got.Model) != "modèle" {
		t.Errorf("got head %+v", got)
	}
	wantHead := ipc.RequestHead{
		Timeout: 11_000_000_000, Flags: 0x80010003, Inputs: 4, Outputs: 1,
		ID: uint32(len("ürgent")), Parameters: uint32(len(`{"a": 1}`)), CorrelText: 3, Trace: uint32(len(`{"traceparent":"00"}`)), CorrelKind: ipc.CorrelationText,
	}
	if got.Head != wantHead {
		t.Errorf("got head of the request %+v, want %+v", got.Head, wantHead)
	}
	for what, pair := range map[string][2]string{
		"id": {string(got.ID), "ürgent"}, "parameters": {string(got.Parameters), `{"a": 1}`},
		"correlation id": {string(got.CorrelText), "seq"}, "trace": {string(got.Trace), `{"traceparent":"00"}`},
	} {
		if pair[0] != pair[1] {
			t.Errorf("got %s %q, want %q", what, pair[0], pair[1])
		}
	}
	if len(got.Outputs) != 2 || got.OutputName(0) != 3 {
		t.Errorf("got outputs %x, want the name 3", got.Outputs)
	}
	want := []ipc.Descriptor{
		{Name: 1, Type: 11, Region: ipc.InFrame, Length: 12, Shape: []int64{1, 3}},
		{Name: 2, Type: 2, Region: ipc.InArena, Offset: 0x30000, Length: 5000, Ticket: 3 | 9<<32, Shape: []int64{5000}},
		{Name: 0, Type: 2, Region: ipc.InRequests, Offset: 0x5000, Length: 8192, Ticket: 4 | 3<<32, Shape: []int64{2, 4096}},
		{Name: 4, Type: 13, Region: ipc.InFrame, Length: 12, Element: 3, Shape: []int64{2}},
	}
	var inline [][]byte
	for i := range got.Inputs {
		if d := &got.Inputs[i]; d.Region == ipc.InFrame {
			b, err := d.InlineBytes(body)
			if err != nil {
				t.Fatal(err)
			}
			inline = append(inline, b)
			want[i].Offset = d.Offset
		}
	}
	if !reflect.DeepEqual(got.Inputs, want) {
		t.Errorf("got inputs %+v, want %+v", got.Inputs, want)
	}
	if want := [][]byte{
		{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}, {2, 0, 0, 0, 'a', 'b', 2, 0, 0, 0, 'c', 'd'},
	}; !reflect.DeepEqual(inline, want) {
		t.Errorf("got bytes in the frame %x, want %x", inline, want)
	}
}

func TestParseWordRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		kind ipc.Kind
		body []byte
	}{
		"short":   {ipc.Demand, make([]byte, 7)},
		"long":    {ipc.Demand, make([]byte, 9)},
		"stop 0":  {ipc.StopInfer, make([]byte, 8)},
		"stop 3":  {ipc.StopInfer, []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		"nothing": {ipc.StopInfer, nil},
	} {
		if n, err := ipc.ParseWord(test.kind, test.body); err == nil {
			t.Errorf("%s: got %d, want a ProtocolError", name, n)
		}
	}
}

// FuzzInfer checks that ParseInfer never panics, that all strings lie within the body, and that
// memory use is proportional to its size.
func FuzzInfer(f *testing.F) {
	frame, err := os.ReadFile(filepath.Join("testdata", "infer.bin"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[ipc.HeaderSize:])
	f.Add(make([]byte, ipc.InferSize+ipc.RequestSize))
	var got ipc.InferBody
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := ipc.ParseInfer(body, &got); err != nil {
			return
		}
		if n := len(got.Model) + len(got.ID) + len(got.Parameters) + len(got.CorrelText) + len(got.Trace) + len(got.Outputs); n > len(body) {
			t.Errorf("strings have %d bytes, the body has %d", n, len(body))
		}
		if len(got.Inputs)*ipc.DescriptorSize > len(body) {
			t.Errorf("%d inputs are in a body of %d bytes", len(got.Inputs), len(body))
		}
		for i := range got.Outputs[:len(got.Outputs)/2] {
			_ = got.OutputName(i)
		}
		for i := range got.Inputs {
			if d := &got.Inputs[i]; d.Region == ipc.InFrame {
				_, _ = d.InlineBytes(body)
			}
		}
	})
}

func TestGoldenWordsAreDecoded(t *testing.T) {
	for name, test := range map[string]struct {
		kind ipc.Kind
		want uint32
	}{"demand": {ipc.Demand, 16}, "stop_infer": {ipc.StopInfer, ipc.StopForget}} {
		frame, body := golden(t, name, test.kind, 0, 9)
		n, err := ipc.ParseWord(test.kind, body)
		if err != nil || n != test.want {
			t.Errorf("%s: got %d, error %v, want %d", name, n, err, test.want)
		}
		if again := encode(test.kind, 0, 9, le.AppendUint64(nil, uint64(n))); !bytes.Equal(again, frame) {
			t.Errorf("%s encoded again: got %x, want %x", name, again, frame)
		}
	}
}

// TestParseInferRefuses checks that ParseInfer rejects a valid request after any single change.
func TestParseInferRefuses(t *testing.T) {
	_, good := golden(t, "infer", ipc.Infer, 0, 9)
	name := ipc.InferSize
	head := name + ipc.Align8(len("modèle"))
	for what, change := range map[string]func([]byte) []byte{
		"cut before its head":    func(b []byte) []byte { return b[:ipc.InferSize-1] },
		"cut in the name":        func(b []byte) []byte { return b[:name+3] },
		"cut in the request":     func(b []byte) []byte { return b[:head+ipc.RequestSize-1] },
		"cut in descriptors":     func(b []byte) []byte { return b[:head+ipc.RequestSize+10] },
		"unknown flag":           func(b []byte) []byte { b[16] |= 8; return b },
		"unknown memory":         func(b []byte) []byte { b[28] = 3; return b },
		"name that is not UTF-8": func(b []byte) []byte { b[name] = 0xff; return b },
		"name longer than all":   func(b []byte) []byte { le.PutUint32(b[24:], 1<<31); return b },
		"id longer than all":     func(b []byte) []byte { le.PutUint32(b[head+32:], 1<<31); return b },
		"more inputs":            func(b []byte) []byte { le.PutUint16(b[head+28:], 0xffff); return b },
		"more outputs":           func(b []byte) []byte { le.PutUint16(b[head+30:], 0xfffe); return b },
		"negative dimension":     func(b []byte) []byte { b[head+ipc.RequestSize+ipc.DescriptorSize+7] = 0xff; return b },
		"unknown region":         func(b []byte) []byte { b[head+ipc.RequestSize+4] = 3; return b },
	} {
		var got ipc.InferBody
		if err := ipc.ParseInfer(change(bytes.Clone(good)), &got); err == nil {
			t.Errorf("%s: got %+v, want a ProtocolError", what, got)
		}
	}
}
