package ipc

import (
	"bytes"
	"testing"
)

// TestGoldenExecuteIsDecoded checks that a decoded batch encodes to the same bytes.
func TestGoldenExecuteIsDecoded(t *testing.T) {
	for name, first := range map[string]uint64{"execute": 1 << 32, "execute_places": 1} { // the handles
		t.Run(name, func(t *testing.T) {
			_, body := Golden(t, name, Execute, 0, 1)
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
	if _, body := Golden(t, "execute_region", Execute, 0, 1); body != nil {
		e, err := ParseExecute(body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.NextRequest(&RequestBody{}); err == nil {
			t.Error("an input in a client's region is taken, which no stub gets that has mapped none")
		}
	}
}

// TestGoldenExecutedIsEncoded compares encoded EXECUTED and RESPONSE frames with their golden
// files.
func TestGoldenExecutedIsEncoded(t *testing.T) {
	const text = "ValueError: wörk"
	body := make([]byte, Align8(ExecutedSize+8+len(text)))
	head := ExecutedHead{Status: StatusFailed, Called: 1000, Returned: 2000, Tickets: 1, Text: uint32(len(text))}
	copy(PutTickets(head.Put(body), []uint64{5 | 1<<32}), text)
	WantGolden(t, "executed_failed", Encode(Executed, 0, 2, body))
	head = ExecutedHead{Status: StatusSkipped}
	head.Put(body[:ExecutedSize])
	WantGolden(t, "executed_skipped", Encode(Executed, 0, 3, body[:ExecutedSize]))
	reported := make([]byte, ExecutedSize+ReportedSize)
	head = ExecutedHead{Status: StatusReported, Called: 2000, Returned: 3000, Text: ReportedSize}
	PutReported(head.Put(reported), 1000, 4000)
	WantGolden(t, "executed_reported", Encode(Executed, 0, 4, reported))

	// A response whose bytes are in the frame.
	d := Descriptor{Name: 1, Type: 8, Region: InFrame, Length: 4, Shape: []int64{1}}
	body = make([]byte, AlignInline(16+ResponseSize+d.Size())+InlineAlign)
	response := ResponseHead{Handle: 1 << 32, Flags: FlagPresent | FlagFinal, Outputs: 1}
	le.PutUint32(body, 1)
	d.Offset = uint64(HeaderSize + len(body) - InlineAlign)
	d.Put(response.Put(PutTickets(body[8:], []uint64{8 | 1<<32})))
	copy(body[len(body)-InlineAlign:], []byte{255, 255, 255, 255})
	WantGolden(t, "response", Encode(Response, 0, 1<<32, body))
}
