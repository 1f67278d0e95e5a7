package ipc_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
)

func TestGoldenInferIsEncoded(t *testing.T) {
	_, body := ipc.Golden(t, "infer", ipc.Infer, 0, 9)
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
	ipc.WantGolden(t, "demand", ipc.Encode(ipc.Demand, 0, 9, word[:]))
	ipc.PutWord(word[:], ipc.MapRefused)
	ipc.WantGolden(t, "mapped", ipc.Encode(ipc.Mapped, 0, 3, word[:]))
	var metric [16]byte
	ipc.PutMetric(metric[:], 1, math.Float64bits(-0.5))
	ipc.WantGolden(t, "metric", ipc.Encode(ipc.Metric, 0, 300, metric[:]))
}

func TestGoldenInferResponseIsDecoded(t *testing.T) {
	_, body := ipc.Golden(t, "infer_response", ipc.InferResponse, 0, 9)
	var got ipc.ResponseBody
	if err := ipc.ParseInferResponse(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Flags&ipc.FlagPresent == 0 || got.Version != 3 || len(got.Outputs) == 0 || got.Outputs[0].Region > ipc.InRequests {
		t.Errorf("got %+v", got)
	}
	_, body = ipc.Golden(t, "infer_response_error", ipc.InferResponse, 0, 9)
	if err := ipc.ParseInferResponse(body, &got); err != nil || got.Flags&ipc.FlagError == 0 || len(got.Error) == 0 {
		t.Errorf("got %+v, error %v", got, err)
	}
	_, body = ipc.Golden(t, "infer_response_end", ipc.InferResponse, 0, 9)
	if err := ipc.ParseInferResponse(body, &got); err != nil || got.Flags != ipc.FlagFinal {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestGoldenCreditAndCancelAreDecoded(t *testing.T) {
	_, body := ipc.Golden(t, "credit", ipc.Credit, 0, 2<<32|1)
	if responses, bytes, err := ipc.ParseCredit(body); responses != 32 || bytes != 5<<32 || err != nil {
		t.Errorf("got %d responses of %d bytes, error %v", responses, bytes, err)
	}
	if _, _, err := ipc.ParseCredit(body[1:]); err == nil {
		t.Error("CREDIT of 15 bytes is taken")
	}
	_, body = ipc.Golden(t, "cancel", ipc.Cancel, 0, 0)
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
