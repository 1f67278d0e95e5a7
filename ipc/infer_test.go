package ipc

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestGoldenInferIsDecoded decodes a request that the stub encodes.
func TestGoldenInferIsDecoded(t *testing.T) {
	_, body := golden(t, "infer", Infer, 0, 9)
	var got InferBody
	if err := ParseInfer(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Batch != 5 || got.Version != 3 || got.Flags != InferStream|InferHolding || got.Demand != 32 || got.Memory != 2 || string(got.Model) != "modèle" {
		t.Errorf("got head %+v", got)
	}
	wantHead := RequestHead{
		Timeout: 11_000_000_000, Flags: 0x80010003, Inputs: 4, Outputs: 1,
		ID: uint32(len("ürgent")), Parameters: uint32(len(`{"a": 1}`)), CorrelText: 3, Trace: uint32(len(`{"traceparent":"00"}`)), CorrelKind: CorrelationText,
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
	want := []Descriptor{
		{Name: 1, Type: 11, Region: InFrame, Length: 12, Shape: []int64{1, 3}},
		{Name: 2, Type: 2, Region: InArena, Offset: 0x30000, Length: 5000, Ticket: 3 | 9<<32, Shape: []int64{5000}},
		{Name: 0, Type: 2, Region: InRequests, Offset: 0x5000, Length: 8192, Ticket: 4 | 3<<32, Shape: []int64{2, 4096}},
		{Name: 4, Type: 13, Region: InFrame, Length: 12, Element: 3, Shape: []int64{2}},
	}
	var inline [][]byte
	for i := range got.Inputs {
		if d := &got.Inputs[i]; d.Region == InFrame {
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

func TestGoldenWordsAreDecoded(t *testing.T) {
	for name, test := range map[string]struct {
		kind Kind
		want uint32
	}{"demand": {Demand, 16}, "stop_infer": {StopInfer, StopForget}} {
		frame, body := golden(t, name, test.kind, 0, 9)
		n, err := ParseWord(test.kind, body)
		if err != nil || n != test.want {
			t.Errorf("%s: got %d, error %v, want %d", name, n, err, test.want)
		}
		if again := encode(test.kind, 0, 9, le.AppendUint64(nil, uint64(n))); !bytes.Equal(again, frame) {
			t.Errorf("%s encoded again: got %x, want %x", name, again, frame)
		}
	}
}

func TestParseWordRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		kind Kind
		body []byte
	}{
		"short":   {Demand, make([]byte, 7)},
		"long":    {Demand, make([]byte, 9)},
		"stop 0":  {StopInfer, make([]byte, 8)},
		"stop 3":  {StopInfer, []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		"nothing": {StopInfer, nil},
	} {
		if n, err := ParseWord(test.kind, test.body); err == nil {
			t.Errorf("%s: got %d, want a ProtocolError", name, n)
		}
	}
}

// TestParseInferRefuses changes one thing of a good request.
func TestParseInferRefuses(t *testing.T) {
	_, good := golden(t, "infer", Infer, 0, 9)
	name := InferSize
	head := name + Align8(len("modèle"))
	for what, change := range map[string]func([]byte) []byte{
		"cut before its head":   func(b []byte) []byte { return b[:InferSize-1] },
		"cut in the name":       func(b []byte) []byte { return b[:name+3] },
		"cut in the request":    func(b []byte) []byte { return b[:head+RequestSize-1] },
		"cut in descriptors":    func(b []byte) []byte { return b[:head+RequestSize+10] },
		"unknown flag":          func(b []byte) []byte { b[16] |= 8; return b },
		"unknown memory":        func(b []byte) []byte { b[28] = 3; return b },
		"name that is no UTF-8": func(b []byte) []byte { b[name] = 0xff; return b },
		"name longer than all":  func(b []byte) []byte { le.PutUint32(b[24:], 1<<31); return b },
		"id longer than all":    func(b []byte) []byte { le.PutUint32(b[head+32:], 1<<31); return b },
		"more inputs":           func(b []byte) []byte { le.PutUint16(b[head+28:], 0xffff); return b },
		"more outputs":          func(b []byte) []byte { le.PutUint16(b[head+30:], 0xfffe); return b },
		"negative dimension":    func(b []byte) []byte { b[head+RequestSize+DescriptorSize+7] = 0xff; return b },
		"unknown region":        func(b []byte) []byte { b[head+RequestSize+4] = 3; return b },
	} {
		var got InferBody
		if err := ParseInfer(change(bytes.Clone(good)), &got); err == nil {
			t.Errorf("%s: got %+v, want a ProtocolError", what, got)
		}
	}
}

// FuzzInfer wants no panic, nothing that lies outside of the body, and memory in
// proportion to it.
func FuzzInfer(f *testing.F) {
	frame, err := os.ReadFile(filepath.Join("testdata", "infer.bin"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[HeaderSize:])
	f.Add(make([]byte, InferSize+RequestSize))
	var got InferBody
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := ParseInfer(body, &got); err != nil {
			return
		}
		if n := len(got.Model) + len(got.ID) + len(got.Parameters) + len(got.CorrelText) + len(got.Trace) + len(got.Outputs); n > len(body) {
			t.Errorf("strings have %d bytes, the body has %d", n, len(body))
		}
		if len(got.Inputs)*DescriptorSize > len(body) {
			t.Errorf("%d inputs are in a body of %d bytes", len(got.Inputs), len(body))
		}
		for i := range got.Outputs[:len(got.Outputs)/2] {
			_ = got.OutputName(i)
		}
		for i := range got.Inputs {
			if d := &got.Inputs[i]; d.Region == InFrame {
				_, _ = d.InlineBytes(body)
			}
		}
	})
}
