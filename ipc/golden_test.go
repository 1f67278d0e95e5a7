package ipc_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm/foreign"
)

var le = binary.LittleEndian

// golden reads one frame of testdata and checks its header.
func golden(t *testing.T, name string, kind ipc.Kind, flags uint16, id uint64) (frame, body []byte) {
	t.Helper()
	frame = ipctest.Frame(t, name)
	var want [ipc.HeaderSize]byte
	ipc.PutHeader(want[:], len(frame), kind, flags, ipctest.Life, id)
	if !bytes.Equal(frame[:ipc.HeaderSize], want[:]) {
		t.Fatalf("%s: got header %x, want %x", name, frame[:ipc.HeaderSize], want)
	}
	return frame, frame[ipc.HeaderSize:]
}

// encode returns a whole frame.
func encode(kind ipc.Kind, flags uint16, id uint64, body []byte) []byte {
	frame := make([]byte, ipc.HeaderSize, ipc.HeaderSize+len(body))
	frame = append(frame, body...)
	ipc.PutHeader(frame, len(frame), kind, flags, ipctest.Life, id)
	return frame
}

// TestGoldenExecutedIsDecoded checks that the stub's decoded frame encodes to the same bytes.
func TestGoldenExecutedIsDecoded(t *testing.T) {
	frame, body := golden(t, "executed", ipc.Executed, 0, 1)
	e, err := ipc.ParseExecuted(body)
	if err != nil {
		t.Fatal(err)
	}
	if e.Responses != 3 || e.Failed || e.Called != 1000 || e.Returned != 2000 || len(e.Text) != 0 {
		t.Errorf("got head %+v, want 3 responses of an execution from 1000 to 2000", e)
	}
	if len(e.Tickets) != 16 || ipc.Ticket(e.Tickets, 0) != 5|1<<32 || ipc.Ticket(e.Tickets, 1) != 6|2<<32 {
		t.Errorf("got tickets %x, want two", e.Tickets)
	}
	again := newEncoder(3, 0, 1000, 2000, []uint64{5 | 1<<32, 6 | 2<<32}, "")
	wants := []ipc.ResponseBody{
		{Handle: 1 << 32, Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: []ipc.Descriptor{
			{Name: 1, Type: 11, Region: ipc.InFrame, Length: 12, Shape: []int64{1, 3}},
			{Name: 2, Type: 2, Region: ipc.InArena, Offset: 0x30000, Length: 5000, Ticket: 3 | 9<<32, Shape: []int64{5000}},
			{Name: 3, Type: 2, Region: ipc.InRequests, Offset: 0x5000, Length: 8192, Ticket: 4 | 3<<32, Shape: []int64{2, 4096}},
			{Name: 4, Type: 13, Region: ipc.InFrame, Length: 12, Element: 3, Shape: []int64{2}},
			{Name: 1, Type: 9, Region: ipc.InFrame, Length: 8, Shape: []int64{}},
		}},
		{Handle: 1<<32 | 1, Flags: ipc.FlagPresent | ipc.FlagFinal | ipc.FlagError, Code: 2, Error: []byte("nöt found")},
		{Handle: 1<<32 | 2, Flags: ipc.FlagPresent | ipc.FlagFinal, Parameters: []byte(`{"a": 1, "b": "x"}`)},
	}
	inline := [][]byte{
		{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40},
		{2, 0, 0, 0, 'a', 'b', 2, 0, 0, 0, 'c', 'd'},
		{5, 0, 0, 0, 0, 0, 0, 0},
	}
	var got ipc.ResponseBody
	var contents [][]byte
	for i := range wants {
		if ok, err := e.NextResponse(&got); !ok || err != nil {
			t.Fatalf("response %d: got ok %v, error %v", i, ok, err)
		}
		for k := range got.Outputs {
			if d := &got.Outputs[k]; d.Region == ipc.InFrame {
				b, err := d.InlineBytes(body)
				if err != nil {
					t.Fatal(err)
				}
				contents = append(contents, b)
				if d.Offset%ipc.InlineAlign != 0 {
					t.Errorf("response %d: bytes of output %d lie at %d, want a multiple of %d", i, k, d.Offset, ipc.InlineAlign)
				}
				wants[i].Outputs[k].Offset = d.Offset
			}
		}
		equalResponse(t, &got, &wants[i])
		again.response(&got)
	}
	if ok, err := e.NextResponse(&got); ok || err != nil {
		t.Errorf("after the last response: got ok %v, error %v", ok, err)
	}
	if !reflect.DeepEqual(contents, inline) {
		t.Errorf("got bytes in the frame %x, want %x", contents, inline)
	}
	if encoded := again.frame(ipc.Executed, 1, contents); !bytes.Equal(encoded, frame) {
		t.Errorf("encoded again: got\n%x, want\n%x", encoded, frame)
	}
}

// TestGoldenFailuresAreDecoded decodes responses with FlagFailure, which only plugins send.
func TestGoldenFailuresAreDecoded(t *testing.T) {
	_, body := golden(t, "executed_failure", ipc.Executed, 0, 1)
	e, err := ipc.ParseExecuted(body)
	if err != nil || e.Responses != 3 || e.Failed {
		t.Fatalf("got head %+v, error %v", e, err)
	}
	for i, want := range []ipc.ResponseBody{
		{Handle: 1<<32 | 1, Flags: ipc.FlagPresent | ipc.FlagFinal | ipc.FlagError, Code: 5, Error: []byte("nöt")},
		{Handle: 1 << 32, Flags: ipc.FlagFailure},
		{Handle: 1<<32 | 1, Flags: ipc.FlagFailure},
	} {
		var got ipc.ResponseBody
		if ok, err := e.NextResponse(&got); !ok || err != nil {
			t.Fatalf("response %d: got ok %v, error %v", i, ok, err)
		}
		equalResponse(t, &got, &want)
	}
}

func equalResponse(t *testing.T, got, want *ipc.ResponseBody) {
	t.Helper()
	if got.Handle != want.Handle || got.Flags != want.Flags || got.Code != want.Code ||
		!bytes.Equal(got.Parameters, want.Parameters) || !bytes.Equal(got.Error, want.Error) {
		t.Errorf("got response %+v, want %+v", got, want)
	}
	if len(got.Outputs) != len(want.Outputs) {
		t.Errorf("got %d outputs, want %d", len(got.Outputs), len(want.Outputs))
		return
	}
	for i := range got.Outputs {
		if !reflect.DeepEqual(got.Outputs[i], want.Outputs[i]) {
			t.Errorf("output %d: got %+v, want %+v", i, got.Outputs[i], want.Outputs[i])
		}
	}
}

// encoder encodes bodies as a stub does.
type encoder struct{ body []byte }

func newEncoder(responses, status uint32, called, returned uint64, tickets []uint64, text string) *encoder {
	b := le.AppendUint32(nil, responses)
	b = le.AppendUint32(b, status)
	b = le.AppendUint64(b, called)
	b = le.AppendUint64(b, returned)
	b = le.AppendUint32(b, uint32(len(tickets)))
	b = le.AppendUint32(b, uint32(len(text)))
	for _, ticket := range tickets {
		b = le.AppendUint64(b, ticket)
	}
	e := &encoder{body: append(b, text...)}
	e.pad(8)
	return e
}

func (e *encoder) pad(to int) {
	for (ipc.HeaderSize+len(e.body))%to != 0 {
		e.body = append(e.body, 0)
	}
}

func (e *encoder) response(r *ipc.ResponseBody) {
	b := le.AppendUint64(e.body, r.Handle)
	b = le.AppendUint32(b, r.Flags)
	b = le.AppendUint16(b, uint16(len(r.Outputs)))
	b = le.AppendUint16(b, r.Code)
	b = le.AppendUint32(b, uint32(len(r.Parameters)))
	b = le.AppendUint32(b, uint32(len(r.Error)))
	b = le.AppendUint64(b, 0)
	for i := range r.Outputs {
		d := make([]byte, r.Outputs[i].Size())
		r.Outputs[i].Put(d)
		b = append(b, d...)
	}
	b = append(b, r.Parameters...)
	e.body = append(b, r.Error...)
	e.pad(8)
}

func (e *encoder) frame(kind ipc.Kind, id uint64, inline [][]byte) []byte {
	e.pad(ipc.InlineAlign)
	for _, b := range inline {
		e.body = append(e.body, b...)
		e.pad(ipc.InlineAlign)
	}
	return encode(kind, 0, id, e.body)
}

func TestGoldenExecutedFailedIsDecoded(t *testing.T) {
	frame, body := golden(t, "executed_failed", ipc.Executed, 0, 2)
	e, err := ipc.ParseExecuted(body)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Failed || e.Responses != 0 || string(e.Text) != "ValueError: wörk" || len(e.Tickets) != 8 {
		t.Errorf("got %+v, want a failed batch with its text and one ticket", e)
	}
	again := newEncoder(0, 1, 1000, 2000, []uint64{5 | 1<<32}, "ValueError: wörk")
	if got := encode(ipc.Executed, 0, 2, again.body); !bytes.Equal(got, frame) {
		t.Errorf("encoded again: got\n%x, want\n%x", got, frame)
	}
}

// TestGoldenTimesAreDecoded decodes an EXECUTED frame with execution times, which only plugins
// send.
func TestGoldenTimesAreDecoded(t *testing.T) {
	_, body := golden(t, "executed_reported", ipc.Executed, 0, 4)
	e, err := ipc.ParseExecuted(body)
	if err != nil || !e.Reported || e.Failed || e.Begun != 1000 || e.Called != 2000 || e.Returned != 3000 || e.Ended != 4000 || len(e.Text) != 0 {
		t.Errorf("got %+v, error %v", e, err)
	}
	for n := range len(body) {
		if _, err := ipc.ParseExecuted(body[:n]); err == nil {
			t.Errorf("%d bytes of it are taken", n)
		}
	}
	body[28]++ // the length of the times
	if _, err := ipc.ParseExecuted(append(body, 0)); err == nil {
		t.Error("times of 17 bytes are taken")
	}
}

func TestGoldenExecutedSkippedIsDecoded(t *testing.T) {
	frame, body := golden(t, "executed_skipped", ipc.Executed, 0, 3)
	e, err := ipc.ParseExecuted(body)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Skipped || e.Failed || e.Responses != 0 || len(e.Text) != 0 || len(e.Tickets) != 0 {
		t.Errorf("got %+v, want a batch that was skipped, and no more", e)
	}
	again := newEncoder(0, ipc.StatusSkipped, 0, 0, nil, "")
	if got := encode(ipc.Executed, 0, 3, again.body); !bytes.Equal(got, frame) {
		t.Errorf("encoded again: got\n%x, want\n%x", got, frame)
	}
	responses := newEncoder(1, ipc.StatusSkipped, 0, 0, nil, "")
	unknown := newEncoder(0, ipc.StatusSkipped+1, 0, 0, nil, "")
	for _, body := range [][]byte{responses.body, unknown.body} {
		if _, err := ipc.ParseExecuted(body); err == nil {
			t.Errorf("EXECUTED with status and responses %x is taken, want a ProtocolError", body[:8])
		}
	}
}

func TestGoldenResponseIsDecoded(t *testing.T) {
	_, body := golden(t, "response", ipc.Response, 0, 1<<32)
	var got ipc.ResponseBody
	tickets, err := ipc.ParseResponse(body, &got)
	if err != nil {
		t.Fatal(err)
	}
	if len(tickets) != 8 || ipc.Ticket(tickets, 0) != 8|1<<32 {
		t.Errorf("got tickets %x, want one", tickets)
	}
	want := ipc.ResponseBody{Handle: 1 << 32, Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: []ipc.Descriptor{
		{Name: 1, Type: 8, Region: ipc.InFrame, Offset: got.Outputs[0].Offset, Length: 4, Shape: []int64{1}},
	}}
	equalResponse(t, &got, &want)
	if b, err := got.Outputs[0].InlineBytes(body); err != nil || !bytes.Equal(b, []byte{255, 255, 255, 255}) {
		t.Errorf("got bytes %x, error %v, want those of -1", b, err)
	}
}

func TestGoldenResponseFinalIsDecoded(t *testing.T) {
	_, body := golden(t, "response_final", ipc.Response, 0, 1<<32|1)
	var got ipc.ResponseBody
	tickets, err := ipc.ParseResponse(body, &got)
	if err != nil || len(tickets) != 0 {
		t.Errorf("got tickets %x, error %v, want none", tickets, err)
	}
	equalResponse(t, &got, &ipc.ResponseBody{Handle: 1<<32 | 1, Flags: ipc.FlagFinal})
}

func TestGoldenSpilledIsDecodedAndEncoded(t *testing.T) {
	_, body := golden(t, "spilled_up", ipc.Executed, ipc.FlagSpilled, 3)
	d, err := ipc.ParseSpilled(body, ipc.InArena)
	want := ipc.Descriptor{Type: 2, Region: ipc.InArena, Offset: 0x30000, Length: 40000, Ticket: 1 | 2<<32, Shape: []int64{}}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, error %v, want %+v", d, err, want)
	}

	d = ipc.Descriptor{Type: 2, Region: ipc.InRequests, Offset: 0x5000, Length: 40000, Ticket: 1 | 2<<32}
	b := make([]byte, ipc.DescriptorSize)
	d.Put(b)
	if got, want := encode(ipc.Execute, ipc.FlagSpilled, 3, b), ipctest.Frame(t, "spilled_down"); !bytes.Equal(got, want) {
		t.Errorf("got frame %x, want %x", got, want)
	}
}

// TestGoldenPlainIsEncoded compares the frames whose bodies are numbers or text.
func TestGoldenPlainIsEncoded(t *testing.T) {
	list := le.AppendUint64(le.AppendUint64(nil, 1), 2|1<<32)
	ipctest.Want(t, "released", ipc.Released, 0, list)
	ipctest.Want(t, "name_up", ipc.Name, 5, []byte("ÄUSSERST"))
	ipctest.Want(t, "name_down", ipc.Name, 6, []byte("ZUSÄTZLICH"))
	ipctest.Want(t, "cancel", ipc.Cancel, 0, list)
	var credit [ipc.CreditSize]byte
	ipc.PutCredit(credit[:], 32, 5<<32)
	ipctest.Want(t, "credit", ipc.Credit, 2<<32|1, credit[:])
	ipctest.Want(t, "finalize", ipc.Finalize, 0, nil)
	ipctest.Want(t, "ready_question", ipc.ReadyQuestion, 9, nil)
	var region [ipc.MapSize]byte
	ipc.PutMap(region[:], 4096, 5<<32, false)
	ipctest.Want(t, "map", ipc.Map, 3, region[:])
	ipc.PutMap(region[:], 4096, 5<<32, true)
	ipctest.Want(t, "map_writable", ipc.Map, 4, region[:])
	ipctest.Want(t, "unmap", ipc.Unmap, 3, nil)
	var allocation [ipc.AllocationSize]byte
	ipc.PutAllocation(allocation[:], goldenDevice())
	ipctest.Want(t, "allocation", ipc.Allocation, 5, allocation[:])
	ipctest.Want(t, "freed", ipc.Freed, 5, nil)
}

// goldenDevice returns the device memory in the golden LEND and ALLOCATION frames.
func goldenDevice() *foreign.Device {
	var uuid [16]byte
	var handle foreign.Handle
	for i := range uuid {
		uuid[i] = byte(i)
	}
	for i := range handle {
		handle[i] = byte(100 + i)
	}
	return foreign.NewDevice(1, uuid, 64<<20, handle)
}

func TestGoldenLendIsDecoded(t *testing.T) {
	_, body := golden(t, "lend", ipc.Lend, 0, 2)
	want := goldenDevice()
	if got, err := ipc.ParseAllocation(body); err != nil || got.Number != want.Number || got.Size != want.Size || got.UUID != want.UUID || got.Handle != want.Handle {
		t.Errorf("got %+v, error %v", got, err)
	}
	golden(t, "unlend", ipc.Unlend, 0, 2)
}

func TestGoldenMappedIsDecoded(t *testing.T) {
	_, body := golden(t, "mapped", ipc.Mapped, 0, 3)
	if status, err := ipc.ParseMapped(body); err != nil || status != ipc.MapRefused {
		t.Errorf("got status %d and error %v, want %d", status, err, ipc.MapRefused)
	}
	for _, body := range [][]byte{nil, body[:7], append(body, 0), {3, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := ipc.ParseMapped(body); err == nil {
			t.Errorf("MAPPED of %x is taken, want a ProtocolError", body)
		}
	}
}

func TestGoldenMetricIsDecoded(t *testing.T) {
	_, body := golden(t, "metric", ipc.Metric, 0, 300)
	if got, err := ipc.ParseMetric(body); err != nil || got != (ipc.MetricBody{Operation: 1, Value: -0.5}) {
		t.Errorf("got %+v, error %v", got, err)
	}
	reserved := append([]byte(nil), body...)
	reserved[4] = 1
	for _, body := range [][]byte{nil, body[:15], append(body, 0), reserved} {
		if _, err := ipc.ParseMetric(body); err == nil {
			t.Errorf("METRIC of %x is taken, want a ProtocolError", body)
		}
	}
}

// TestGoldenIsComplete checks that testdata has a frame of each kind.
func TestGoldenIsComplete(t *testing.T) {
	seen := make(map[ipc.Kind]bool)
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil || len(b) < ipc.HeaderSize {
			t.Fatalf("%s: %d bytes, error %v", name, len(b), err)
		}
		seen[ipc.Kind(le.Uint16(b[4:]))] = true
	}
	for kind := range ipc.KindNames {
		if kind != ipc.Pad && !seen[kind] { // a PAD has no contents
			t.Errorf("testdata has no frame %s", kind)
		}
	}
}

// TestShapesAreStoredInTheGivenMemory checks that decoded shapes are stored in ResponseBody.Shapes
// if they fit. Shapes is used for one response only.
func TestShapesAreStoredInTheGivenMemory(t *testing.T) {
	shapes := [][]int64{{1, 2}, {3, 4, 5}, {6}}
	head := ipc.ResponseHead{Handle: 1, Flags: ipc.FlagPresent | ipc.FlagFinal, Outputs: uint16(len(shapes))}
	body := make([]byte, 8+ipc.ResponseSize+len(shapes)*(ipc.DescriptorSize+24))
	b := head.Put(body[8:])
	for _, shape := range shapes {
		d := ipc.Descriptor{Region: ipc.InFrame, Offset: ipc.HeaderSize, Shape: shape}
		b = d.Put(b)
	}
	room := make([]int64, 4)
	got := ipc.ResponseBody{Shapes: room[:0]}
	for _, roomy := range []bool{true, false} {
		if _, err := ipc.ParseResponse(body, &got); err != nil {
			t.Fatal(err)
		}
		for i := range shapes {
			if !slices.Equal(got.Outputs[i].Shape, shapes[i]) {
				t.Errorf("shape %d: got %v, want %v", i, got.Outputs[i].Shape, shapes[i])
			}
		}
		// The first and the third shape fit.
		if inside := []bool{&got.Outputs[0].Shape[0] == &room[0], &got.Outputs[2].Shape[0] == &room[2]}; inside[0] != roomy || inside[1] != roomy {
			t.Errorf("got shapes in the memory %v, want all %v", inside, roomy)
		}
		if got.Shapes != nil {
			t.Error("the memory can be used again")
		}
	}
}
