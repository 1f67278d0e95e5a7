package ipc_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
)

func TestGoldenInferIsEncoded(t *testing.T) {
	_, body := golden(t, "infer", ipc.Infer, 0, 9)
	var got ipc.InferBody
	if err := ipc.ParseInfer(body, &got); err != nil {
		t.Fatal(err)
	}
	var head [ipc.InferSize]byte
	h := ipc.InferHead{Batch: got.Batch, Version: got.Version, Flags: got.Flags, Demand: got.Demand, Model: uint32(len(got.Model)), Memory: got.Memory}
	h.Put(head[:])
	if !bytes.Equal(head[:], body[:ipc.InferSize]) {
		t.Errorf("got head %x, want %x", head, body[:ipc.InferSize])
	}
	var word [8]byte
	ipc.PutWord(word[:], 16)
	ipctest.Want(t, "demand", ipc.Demand, 9, word[:])
	ipc.PutWord(word[:], ipc.MapRefused)
	ipctest.Want(t, "mapped", ipc.Mapped, 3, word[:])
	var metric [16]byte
	ipc.PutMetric(metric[:], 1, math.Float64bits(-0.5))
	ipctest.Want(t, "metric", ipc.Metric, 300, metric[:])
}

func TestGoldenInferResponseIsDecoded(t *testing.T) {
	_, body := golden(t, "infer_response", ipc.InferResponse, 0, 9)
	var got ipc.ResponseBody
	if err := ipc.ParseInferResponse(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Flags&ipc.FlagPresent == 0 || got.Version != 3 || len(got.Outputs) == 0 || got.Outputs[0].Region > ipc.InRequests {
		t.Errorf("got %+v", got)
	}
	_, body = golden(t, "infer_response_error", ipc.InferResponse, 0, 9)
	if err := ipc.ParseInferResponse(body, &got); err != nil || got.Flags&ipc.FlagError == 0 || len(got.Error) == 0 {
		t.Errorf("got %+v, error %v", got, err)
	}
	_, body = golden(t, "infer_response_end", ipc.InferResponse, 0, 9)
	if err := ipc.ParseInferResponse(body, &got); err != nil || got.Flags != ipc.FlagFinal {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestGoldenCreditAndCancelAreDecoded(t *testing.T) {
	_, body := golden(t, "credit", ipc.Credit, 0, 2<<32|1)
	if responses, bytes, err := ipc.ParseCredit(body); responses != 32 || bytes != 5<<32 || err != nil {
		t.Errorf("got %d responses of %d bytes, error %v", responses, bytes, err)
	}
	if _, _, err := ipc.ParseCredit(body[1:]); err == nil {
		t.Error("CREDIT of 15 bytes is taken")
	}
	_, body = golden(t, "cancel", ipc.Cancel, 0, 0)
	if n, err := ipc.ParseHandles(body); n != 2 || err != nil || ipc.Ticket(body, 1) != 2|1<<32 {
		t.Errorf("got %d handles, error %v", n, err)
	}
	if _, err := ipc.ParseHandles(body[1:]); err == nil {
		t.Error("CANCEL of 15 bytes is taken")
	}
}

// FuzzExecute checks that ParseExecute fails or yields requests that lie within the body.
func FuzzExecute(f *testing.F) {
	for _, name := range []string{"execute", "execute_region", "execute_places"} {
		_, body := goldenOf(f, name)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := ipc.ParseExecute(body)
		if err != nil {
			return
		}
		var request ipc.RequestBody
		for size := 0; ; {
			ok, err := e.NextRequest(&request)
			for i := range request.Inputs {
				_, _ = request.Inputs[i].InlineBytes(body)
				size += ipc.DescriptorSize
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

// FuzzInferResponse parses arbitrary bodies as a stub does.
func FuzzInferResponse(f *testing.F) {
	for _, name := range []string{"infer_response", "infer_response_end", "infer_response_error"} {
		_, body := goldenOf(f, name)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var response ipc.ResponseBody
		err := ipc.ParseInferResponse(body, &response)
		for i := range response.Outputs {
			if d := &response.Outputs[i]; d.Region != ipc.InRequests && d.Region != ipc.InFrame {
				t.Fatalf("got region %d", d.Region)
			}
			_, _ = response.Outputs[i].InlineBytes(body)
		}
		if err == nil && reflect.DeepEqual(response, ipc.ResponseBody{}) && len(body) < ipc.InferResponseSize+ipc.ResponseSize {
			t.Fatalf("%d bytes are a response", len(body))
		}
	})
}

// goldenOf reads one frame of testdata.
func goldenOf(t testing.TB, name string) (frame, body []byte) {
	t.Helper()
	frame, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return frame, frame[ipc.HeaderSize:]
}

// TestGoldenExecuteIsDecoded checks that a decoded batch encodes to the same bytes.
func TestGoldenExecuteIsDecoded(t *testing.T) {
	for name, first := range map[string]uint64{"execute": 1 << 32, "execute_places": 1} { // the handles
		t.Run(name, func(t *testing.T) {
			_, body := golden(t, name, ipc.Execute, 0, 1)
			e, err := ipc.ParseExecute(body)
			if err != nil || e.Requests == 0 {
				t.Fatalf("got %d requests, error %v", e.Requests, err)
			}
			body[4] = byte(ipc.ExecuteCopies)
			if flagged, err := ipc.ParseExecute(body); e.Copies || err != nil || !flagged.Copies {
				t.Errorf("got copies %v, with the flag %v, error %v", e.Copies, flagged.Copies, err)
			}
			body[4] = 0
			again := le.AppendUint32(nil, e.Requests)
			again = le.AppendUint32(again, 0)
			at := 0
			for handle := range uint64(e.Requests) {
				var got ipc.RequestBody
				ok, err := e.NextRequest(&got)
				if !ok || err != nil {
					t.Fatalf("request %d: got ok %v, error %v", handle, ok, err)
				}
				if got.Head.Handle != first+handle || len(got.Inputs) != int(got.Head.Inputs) {
					t.Errorf("got request %+v, want handle %d", got, first+handle)
				}
				head := make([]byte, ipc.RequestSize)
				got.Head.Put(head)
				again = append(again, head...)
				for i := range got.Inputs {
					d := &got.Inputs[i]
					b := make([]byte, d.Size())
					d.Put(b)
					again = append(again, b...)
					if d.Region == ipc.InFrame {
						if _, err := d.InlineBytes(body); err != nil {
							t.Error(err)
						}
					}
				}
				again = append(again, got.Outputs...)
				again = append(again, make([]byte, ipc.Align8(len(got.Outputs))-len(got.Outputs))...)
				at = len(again) + ipc.PlaceSize*int(got.Head.Places)
				again = append(again, body[len(again):at]...)
				strings := bytes.Join([][]byte{got.ID, got.Parameters, got.CorrelText, got.Trace}, nil)
				again = append(again, strings...)
				again = append(again, make([]byte, ipc.Align8(len(strings))-len(strings))...)
			}
			if ok, err := e.NextRequest(&ipc.RequestBody{}); ok || err != nil {
				t.Errorf("after the last request: got ok %v, error %v", ok, err)
			}
			if !bytes.Equal(again, body[:len(again)]) {
				t.Errorf("encoded again: got\n%x, want\n%x", again, body)
			}
		})
	}
	if _, body := golden(t, "execute_region", ipc.Execute, 0, 1); body != nil {
		e, err := ipc.ParseExecute(body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.NextRequest(&ipc.RequestBody{}); err == nil {
			t.Error("an input in a client's region is taken, which no stub gets that has mapped none")
		}
	}
}

// TestGoldenExecutedIsEncoded compares encoded EXECUTED and RESPONSE frames with their golden
// files.
func TestGoldenExecutedIsEncoded(t *testing.T) {
	const text = "ValueError: wörk"
	body := make([]byte, ipc.Align8(ipc.ExecutedSize+8+len(text)))
	head := ipc.ExecutedHead{Status: ipc.StatusFailed, Called: 1000, Returned: 2000, Tickets: 1, Text: uint32(len(text))}
	copy(ipc.PutTickets(head.Put(body), []uint64{5 | 1<<32}), text)
	ipctest.Want(t, "executed_failed", ipc.Executed, 2, body)
	head = ipc.ExecutedHead{Status: ipc.StatusSkipped}
	head.Put(body[:ipc.ExecutedSize])
	ipctest.Want(t, "executed_skipped", ipc.Executed, 3, body[:ipc.ExecutedSize])
	reported := make([]byte, ipc.ExecutedSize+ipc.ReportedSize)
	head = ipc.ExecutedHead{Status: ipc.StatusReported, Called: 2000, Returned: 3000, Text: ipc.ReportedSize}
	ipc.PutReported(head.Put(reported), 1000, 4000)
	ipctest.Want(t, "executed_reported", ipc.Executed, 4, reported)

	// A response whose bytes are in the frame.
	d := ipc.Descriptor{Name: 1, Type: 8, Region: ipc.InFrame, Length: 4, Shape: []int64{1}}
	body = make([]byte, ipc.AlignInline(16+ipc.ResponseSize+d.Size())+ipc.InlineAlign)
	response := ipc.ResponseHead{Handle: 1 << 32, Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: 1}
	le.PutUint32(body, 1)
	d.Offset = uint64(ipc.HeaderSize + len(body) - ipc.InlineAlign)
	d.Put(response.Put(ipc.PutTickets(body[8:], []uint64{8 | 1<<32})))
	copy(body[len(body)-ipc.InlineAlign:], []byte{255, 255, 255, 255})
	ipctest.Want(t, "response", ipc.Response, 1<<32, body)
}
