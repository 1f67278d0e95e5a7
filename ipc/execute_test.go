package ipc

import (
	"bytes"
	"math"
	"reflect"
	"testing"
)

// TestGoldenExecuteIsDecoded decodes a batch as a stub does, and encodes it again.
func TestGoldenExecuteIsDecoded(t *testing.T) {
	for name, first := range map[string]uint64{"execute": 1 << 32, "execute_places": 1} { // the handles
		t.Run(name, func(t *testing.T) {
			_, body := golden(t, name, Execute, 0, 1)
			e, err := ParseExecute(body)
			if err != nil || e.Requests == 0 {
				t.Fatalf("got %d requests, error %v", e.Requests, err)
			}
			body[4] = byte(ExecuteCopies)
			if flagged, err := ParseExecute(body); e.Copies || err != nil || !flagged.Copies {
				t.Errorf("got copies %v, with the flag %v, error %v", e.Copies, flagged.Copies, err)
			}
			body[4] = 0
			again := le.AppendUint32(nil, e.Requests)
			again = le.AppendUint32(again, 0)
			at := 0
			for handle := range uint64(e.Requests) {
				var got RequestBody
				ok, err := e.NextRequest(&got)
				if !ok || err != nil {
					t.Fatalf("request %d: got ok %v, error %v", handle, ok, err)
				}
				if got.Head.Handle != first+handle || len(got.Inputs) != int(got.Head.Inputs) {
					t.Errorf("got request %+v, want handle %d", got, first+handle)
				}
				head := make([]byte, RequestSize)
				got.Head.Put(head)
				again = append(again, head...)
				for i := range got.Inputs {
					d := &got.Inputs[i]
					b := make([]byte, d.Size())
					d.Put(b)
					again = append(again, b...)
					if d.Region == InFrame {
						if _, err := d.InlineBytes(body); err != nil {
							t.Error(err)
						}
					}
				}
				again = append(again, got.Outputs...)
				again = append(again, make([]byte, Align8(len(got.Outputs))-len(got.Outputs))...)
				at = len(again) + PlaceSize*int(got.Head.Places)
				again = append(again, body[len(again):at]...)
				strings := bytes.Join([][]byte{got.ID, got.Parameters, got.CorrelText, got.Trace}, nil)
				again = append(again, strings...)
				again = append(again, make([]byte, Align8(len(strings))-len(strings))...)
			}
			if ok, err := e.NextRequest(&RequestBody{}); ok || err != nil {
				t.Errorf("after the last request: got ok %v, error %v", ok, err)
			}
			if !bytes.Equal(again, body[:len(again)]) {
				t.Errorf("encoded again: got\n%x, want\n%x", again, body)
			}
		})
	}
	if _, body := golden(t, "execute_region", Execute, 0, 1); body != nil {
		e, err := ParseExecute(body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.NextRequest(&RequestBody{}); err == nil {
			t.Error("an input in a client's region is taken, which no stub gets that has mapped none")
		}
	}
}

// TestGoldenExecutedIsEncoded encodes a stub's response.
func TestGoldenExecutedIsEncoded(t *testing.T) {
	const text = "ValueError: wörk"
	body := make([]byte, Align8(ExecutedSize+8+len(text)))
	head := ExecutedHead{Status: StatusFailed, Called: 1000, Returned: 2000, Tickets: 1, Text: uint32(len(text))}
	copy(PutTickets(head.Put(body), []uint64{5 | 1<<32}), text)
	wantGolden(t, "executed_failed", encode(Executed, 0, 2, body))
	head = ExecutedHead{Status: StatusSkipped}
	head.Put(body[:ExecutedSize])
	wantGolden(t, "executed_skipped", encode(Executed, 0, 3, body[:ExecutedSize]))
	reported := make([]byte, ExecutedSize+ReportedSize)
	head = ExecutedHead{Status: StatusReported, Called: 2000, Returned: 3000, Text: ReportedSize}
	PutReported(head.Put(reported), 1000, 4000)
	wantGolden(t, "executed_reported", encode(Executed, 0, 4, reported))

	// A response with its bytes in the frame.
	d := Descriptor{Name: 1, Type: 8, Region: InFrame, Length: 4, Shape: []int64{1}}
	body = make([]byte, AlignInline(16+ResponseSize+d.Size())+InlineAlign)
	response := ResponseHead{Handle: 1 << 32, Flags: FlagPresent | FlagFinal, Outputs: 1}
	le.PutUint32(body, 1)
	d.Offset = uint64(HeaderSize + len(body) - InlineAlign)
	d.Put(response.Put(PutTickets(body[8:], []uint64{8 | 1<<32})))
	copy(body[len(body)-InlineAlign:], []byte{255, 255, 255, 255})
	wantGolden(t, "response", encode(Response, 0, 1<<32, body))
}

func TestGoldenInferIsEncoded(t *testing.T) {
	_, body := golden(t, "infer", Infer, 0, 9)
	var got InferBody
	if err := ParseInfer(body, &got); err != nil {
		t.Fatal(err)
	}
	var head [InferSize]byte
	h := InferHead{Batch: got.Batch, Version: got.Version, Flags: got.Flags, Demand: got.Demand, Model: uint32(len(got.Model)), Memory: got.Memory}
	h.Put(head[:])
	if !bytes.Equal(head[:], body[:InferSize]) {
		t.Errorf("got head %x, want %x", head, body[:InferSize])
	}
	var word [8]byte
	PutWord(word[:], 16)
	wantGolden(t, "demand", encode(Demand, 0, 9, word[:]))
	PutWord(word[:], MapRefused)
	wantGolden(t, "mapped", encode(Mapped, 0, 3, word[:]))
	var metric [16]byte
	PutMetric(metric[:], 1, math.Float64bits(-0.5))
	wantGolden(t, "metric", encode(Metric, 0, 300, metric[:]))
}

func TestGoldenInferResponseIsDecoded(t *testing.T) {
	_, body := golden(t, "infer_response", InferResponse, 0, 9)
	var got ResponseBody
	if err := ParseInferResponse(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Flags&FlagPresent == 0 || got.Version != 3 || len(got.Outputs) == 0 || got.Outputs[0].Region > InRequests {
		t.Errorf("got %+v", got)
	}
	_, body = golden(t, "infer_response_error", InferResponse, 0, 9)
	if err := ParseInferResponse(body, &got); err != nil || got.Flags&FlagError == 0 || len(got.Error) == 0 {
		t.Errorf("got %+v, error %v", got, err)
	}
	_, body = golden(t, "infer_response_end", InferResponse, 0, 9)
	if err := ParseInferResponse(body, &got); err != nil || got.Flags != FlagFinal {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestGoldenCreditAndCancelAreDecoded(t *testing.T) {
	_, body := golden(t, "credit", Credit, 0, 2<<32|1)
	if responses, bytes, err := ParseCredit(body); responses != 32 || bytes != 5<<32 || err != nil {
		t.Errorf("got %d responses of %d bytes, error %v", responses, bytes, err)
	}
	if _, _, err := ParseCredit(body[1:]); err == nil {
		t.Error("CREDIT of 15 bytes is taken")
	}
	_, body = golden(t, "cancel", Cancel, 0, 0)
	if n, err := ParseHandles(body); n != 2 || err != nil || Ticket(body, 1) != 2|1<<32 {
		t.Errorf("got %d handles, error %v", n, err)
	}
	if _, err := ParseHandles(body[1:]); err == nil {
		t.Error("CANCEL of 15 bytes is taken")
	}
}

// FuzzExecute reads arbitrary bodies as a stub does: an error, or requests that lie in the body.
func FuzzExecute(f *testing.F) {
	for _, name := range []string{"execute", "execute_region", "execute_places"} {
		_, body := goldenOf(f, name)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := ParseExecute(body)
		if err != nil {
			return
		}
		var request RequestBody
		for size := 0; ; {
			ok, err := e.NextRequest(&request)
			for i := range request.Inputs {
				_, _ = request.Inputs[i].InlineBytes(body)
				size += DescriptorSize
			}
			if size > len(body) {
				t.Fatalf("a body of %d bytes has descriptors of %d", len(body), size)
			}
			if err != nil || !ok {
				return
			}
			for i := range len(request.Outputs) / 2 {
				_ = request.OutputName(i)
			}
		}
	})
}

// FuzzInferResponse reads arbitrary bodies as a stub does.
func FuzzInferResponse(f *testing.F) {
	for _, name := range []string{"infer_response", "infer_response_end", "infer_response_error"} {
		_, body := goldenOf(f, name)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var response ResponseBody
		err := ParseInferResponse(body, &response)
		for i := range response.Outputs {
			if d := &response.Outputs[i]; d.Region != InRequests && d.Region != InFrame {
				t.Fatalf("got region %d", d.Region)
			}
			_, _ = response.Outputs[i].InlineBytes(body)
		}
		if err == nil && reflect.DeepEqual(response, ResponseBody{}) && len(body) < InferResponseSize+ResponseSize {
			t.Fatalf("%d bytes are a response", len(body))
		}
	})
}
