package recording_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/recording"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// example returns a record with all fields.
func example() *recording.Record {
	one := func(name string, data []byte) recording.Tensor {
		return recording.Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data}}
	}
	return &recording.Record{
		Model: "m", Version: 3, Decoupled: true, Received: time.Date(2026, 11, 23, 4, 15, 0, 123456789, time.UTC), Took: 412 * time.Microsecond,
		Request: recording.Message{
			Asked: 3, ID: "7", Redacted: []string{"token"}, Wanted: []string{"A", "B"},
			Parameters: []infer.Parameter{
				{Name: "s", Kind: infer.StringParameter, String: "\"x\"\n"}, {Name: "i", Kind: infer.IntParameter, Int: -5}, {Name: "b", Kind: infer.BoolParameter, Bool: true},
				{Name: "d", Kind: infer.DoubleParameter, Double: 2}, {Name: "i", Kind: infer.IntParameter, Int: 6},
			},
			Tensors: []recording.Tensor{one("X", []byte{1, 2, 3}), {Tensor: infer.Tensor{Name: "Y", DataType: infer.Bytes, Shape: []int64{2}}, Redacted: true}, one("Z", []byte{})},
		},
		Answers: []recording.Message{
			{Asked: infer.LatestVersion, ID: "7", Tensors: []recording.Tensor{one("A", []byte{4})}, After: 100 * time.Microsecond},
			{Asked: infer.LatestVersion, Err: infer.Errorf(infer.Unavailable, "no\n\"more\""), After: 200 * time.Microsecond},
		},
	}
}

func TestRecordsSurviveTheirFile(t *testing.T) {
	for name, change := range map[string]func(*recording.Record){
		"all":     func(*recording.Record) {},
		"nothing": func(r *recording.Record) { r.Request, r.Answers = recording.Message{Asked: infer.LatestVersion}, nil },
	} {
		want := example()
		change(want)
		var b bytes.Buffer
		n, err := want.WriteTo(&b)
		if err != nil || n != int64(b.Len()) {
			t.Fatalf("%s: got %d of %d bytes, %v", name, n, b.Len(), err)
		}
		got, err := recording.Read(bytes.NewReader(b.Bytes()), n)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
		}
		for end := range b.Len() { // truncated at any point
			if _, err := recording.Read(bytes.NewReader(b.Bytes()[:end]), int64(end)); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are taken for a record", name, end, b.Len())
			}
		}
	}
}

// TestFileIsAsDocumented checks that docs/record.md shows two parts of a request's record as they
// are written.
func TestFileIsAsDocumented(t *testing.T) {
	r := &recording.Record{Model: "add_sub", Version: 1, Received: time.Date(2026, 11, 23, 4, 15, 0, 123456789, time.UTC), Took: 412 * time.Microsecond, Request: recording.Message{
		Asked: infer.LatestVersion, ID: "7", Parameters: []infer.Parameter{{Name: "sequence_id", Kind: infer.IntParameter, Int: 3}}, Wanted: []string{"SUM"},
		Tensors: []recording.Tensor{{Tensor: infer.Tensor{Name: "A", DataType: infer.FP32, Shape: []int64{4}, Data: make([]byte, 16)}}},
	}}
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/record.md")
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(b.String(), "\n")
	for _, want := range []string{first[:strings.Index(first, `"messages"`)], rest[:len(rest)-16]} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/record.md does not have %s", want)
		}
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_, _ = example().WriteTo(&b)
	f.Add(b.Bytes())
	f.Add([]byte(`{"nereid_record":1,"model":"m","messages":[{"kind":"request","head":2,"binary":-1}]}` + "\n{}"))
	f.Add([]byte(`{"nereid_record":1,"model":"m","messages":[{"kind":"error","head":9223372036854775807,"binary":9223372036854775807}]}` + "\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recording.Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if _, err := r.WriteTo(&again); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := recording.Read(bytes.NewReader(again.Bytes()), int64(again.Len())); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

// lent is a Memory that counts its releases.
type lent struct{ released *int }

func (lent) Retain()    {}
func (l lent) Release() { *l.released++ }

// foreign is a client's memory.
type foreign struct {
	lent
	data []byte
}

func (f foreign) Size() int64 { return int64(len(f.data)) }
func (f foreign) Copy(context.Context) ([]byte, infer.Memory, error) {
	return slices.Clone(f.data), f.lent, nil
}

// recorded records one request to a model whose responses answer sends, and returns the records.
func recorded(t *testing.T, config recording.Config, req *infer.Request, answer func(req *infer.Request, send infer.Sender) error) []*recording.Record {
	t.Helper()
	return recording.RecordedIn(t.Context(), t, config, req, answer)
}

// TestReplayedRequestsAreNotRecorded checks that a replayed request reaches its model but is not
// recorded.
func TestReplayedRequestsAreNotRecorded(t *testing.T) {
	reached := 0
	answer := func(*infer.Request, infer.Sender) error { reached++; return nil }
	if list := recording.RecordedIn(server.Replayed(t.Context()), t, recording.Config{}, &infer.Request{Model: "m"}, answer); len(list) != 0 || reached != 1 {
		t.Errorf("got %d records of %d requests, want none of 1", len(list), reached)
	}
}

// TestPipesAreNoRecords checks that a named pipe in place of a record does not block, and that a
// file that claims to be huge takes no memory.
func TestPipesAreNoRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1"+recording.Extension)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := recording.Open(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("got %v", err)
	}
	if key := recording.Key(path); key != "" {
		t.Errorf("got key %q", key)
	}
	huge := path + "2"
	testkit.WriteFiles(t, filepath.Dir(huge), map[string]string{filepath.Base(huge): `{"nereid_record":1,"messages":[{"kind":"request","binary":1000000000000}]}` + "\n"})
	if err := os.Truncate(huge, 1<<41); err != nil {
		t.Fatal(err)
	}
	if _, err := recording.Open(huge); err == nil || !strings.Contains(err.Error(), "it has 2199023255552 bytes, want at most 536870912") {
		t.Errorf("got %v", err)
	}
}

// TestRequestsAreRecordedAsClientsSentThem checks the record of a request, with redacted tensors
// and parameters.
func TestRequestsAreRecordedAsClientsSentThem(t *testing.T) {
	released := 0
	req := &infer.Request{
		Model: "m", Version: 2, ID: "x", Correlation: infer.CorrelationID{Text: "s"}, Flags: infer.SequenceStart, Priority: 1, TimeoutMicros: 9,
		Parameters: []infer.Parameter{{Name: "token", Kind: infer.StringParameter, String: "secret"}, {Name: "p", Kind: infer.BoolParameter}},
		Inputs:     []infer.Tensor{recording.UintTensor("A", 1, 2), recording.UintTensor("HIDDEN", 3), {Name: "F", DataType: infer.Uint8, Shape: []int64{2}, Memory: foreign{lent{&released}, []byte{8, 9}}}},
		Outputs:    []string{"O"},
	}
	list := recorded(t, recording.Config{Redact: []string{"HIDDEN", "token", "H2"}, Memory: budget.New(budget.Config{Limit: 1 << 30})}, req, func(_ *infer.Request, send infer.Sender) error {
		send(&infer.Response{Version: 2, ID: "x", Outputs: []infer.Tensor{recording.UintTensor("O", 5), recording.UintTensor("H2", 6), {Name: "W", DataType: infer.Uint8, Shape: []int64{1}, Memory: &infer.Written{Foreign: foreign{lent{&released}, []byte{7, 0}}, Bytes: 1}}}})
		send(&infer.Response{Err: infer.Errorf(infer.Internal, "late"), Final: true})
		send(&infer.Response{Empty: true, Final: true})
		return nil
	})
	if len(list) != 1 {
		t.Fatalf("got %d records, want 1", len(list))
	}
	r := list[0]
	if got, want := r.Request.Parameters, []infer.Parameter{
		{Name: "sequence_id", Kind: infer.StringParameter, String: "s"}, {Name: "sequence_start", Kind: infer.BoolParameter, Bool: true},
		{Name: "priority", Kind: infer.IntParameter, Int: 1}, {Name: "timeout", Kind: infer.IntParameter, Int: 9}, {Name: "p", Kind: infer.BoolParameter},
	}; !slices.Equal(got, want) || !slices.Equal(r.Request.Redacted, []string{"token"}) {
		t.Errorf("parameters: got %v, redacted %q", got, r.Request.Redacted)
	}
	show := func(tensors []recording.Tensor) (s string) {
		for _, t := range tensors {
			s += t.Name + string([]byte{'0' + byte(len(t.Data))}) + map[bool]string{true: "!"}[t.Redacted]
			for _, b := range t.Data {
				s += "," + string('0'+rune(b))
			}
			s += " "
		}
		return s
	}
	if got, want := show(r.Request.Tensors), "A2,1,2 HIDDEN0! F2,8,9 "; got != want {
		t.Errorf("inputs: got %s, want %s", got, want)
	}
	if len(r.Answers) != 2 || r.Answers[1].Err == nil || r.Answers[1].Err.Message != "late" || r.Version != 2 {
		t.Fatalf("got answers %+v of version %d", r.Answers, r.Version)
	}
	if got, want := show(r.Answers[0].Tensors), "O1,5 H20! W1,7 "; got != want {
		t.Errorf("outputs: got %s, want %s", got, want)
	}
	if r.Request.Asked != 2 || r.Request.ID != "x" || !slices.Equal(r.Request.Wanted, []string{"O"}) {
		t.Errorf("got %+v", r.Request)
	}
}

// TestRejectedAndMovedRequests checks that a rejected request is recorded with its error, and
// that a request that moves to a version's successor or is for another model is not recorded.
func TestRejectedAndMovedRequests(t *testing.T) {
	request := func() *infer.Request {
		return &infer.Request{Model: "m", Version: infer.LatestVersion, Inputs: []infer.Tensor{recording.UintTensor("A", 1)}}
	}
	if list := recorded(t, recording.Config{}, request(), func(*infer.Request, infer.Sender) error { return infer.Errorf(infer.InvalidArg, "bad") }); len(list) != 1 || list[0].Answers[0].Err.Message != "bad" ||
		list[0].Answers[0].Err.Code != infer.InvalidArg {
		t.Errorf("refused: got %+v", list)
	}
	if list := recorded(t, recording.Config{}, request(), func(*infer.Request, infer.Sender) error { return models.ErrReplaced }); len(list) != 0 {
		t.Errorf("replaced: got %d records", len(list))
	}
	if list := recorded(t, recording.Config{Models: []string{"other"}}, request(), func(*infer.Request, infer.Sender) error { return nil }); len(list) != 0 {
		t.Errorf("of another model: got %d records", len(list))
	}
}

// TestBodiesThatAreOneTensor checks that a raw body is recorded as a request with one tensor, and
// that an element of BYTES is preceded by its length.
func TestBodiesThatAreOneTensor(t *testing.T) {
	for _, test := range []struct {
		datatype infer.DataType
		want     string
	}{{infer.Uint8, "\x01\x02"}, {infer.Bytes, "\x02\x00\x00\x00\x01\x02"}} {
		raw := &infer.Request{Model: "m", Version: infer.LatestVersion, Raw: true, Inputs: []infer.Tensor{{Data: []byte{1, 2}}}}
		list := recorded(t, recording.Config{}, raw, func(req *infer.Request, _ infer.Sender) error {
			req.Inputs[0].Name, req.Inputs[0].DataType, req.Inputs[0].Shape = "R", test.datatype, []int64{2}
			return nil
		})
		if len(list) != 1 || list[0].Request.Tensors[0].Name != "R" || string(list[0].Request.Tensors[0].Data) != test.want {
			t.Errorf("%s: got %+v, want %q", test.datatype, list, test.want)
		}
	}
	refused := &infer.Request{Model: "m", Raw: true, Inputs: []infer.Tensor{{Data: []byte{1, 2}}}}
	list := recorded(t, recording.Config{}, refused, func(*infer.Request, infer.Sender) error { return infer.Errorf(infer.InvalidArg, "two inputs") })
	if len(list) != 1 || string(list[0].Request.Tensors[0].Data) != "\x01\x02" {
		t.Errorf("refused: got %+v", list)
	}
}

// TestNothingIsRecordedUnlessAsked checks that without a directory the front ends use the core
// itself.
func TestNothingIsRecordedUnlessAsked(t *testing.T) {
	r, err := recording.New(recording.Config{})
	core := &recording.FakeCore{}
	if err != nil || r != nil || r.Around(core) != server.Core(core) {
		t.Errorf("got %v, %v", r, err)
	}
	r.Close()
}
