package recording

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// example has all fields of a record.
func example() *Record {
	one := func(name string, data []byte) Tensor {
		return Tensor{Tensor: infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data}}
	}
	return &Record{
		Model: "m", Version: 3, Decoupled: true, Received: time.Date(2026, 11, 23, 4, 15, 0, 123456789, time.UTC), Took: 412 * time.Microsecond,
		Request: Message{
			Asked: 3, ID: "7", Redacted: []string{"token"}, Wanted: []string{"A", "B"},
			Parameters: []infer.Parameter{
				{Name: "s", Kind: infer.StringParameter, String: "\"x\"\n"}, {Name: "i", Kind: infer.IntParameter, Int: -5}, {Name: "b", Kind: infer.BoolParameter, Bool: true},
				{Name: "d", Kind: infer.DoubleParameter, Double: 2}, {Name: "i", Kind: infer.IntParameter, Int: 6},
			},
			Tensors: []Tensor{one("X", []byte{1, 2, 3}), {Tensor: infer.Tensor{Name: "Y", DataType: infer.Bytes, Shape: []int64{2}}, Redacted: true}, one("Z", []byte{})},
		},
		Answers: []Message{
			{Asked: infer.LatestVersion, ID: "7", Tensors: []Tensor{one("A", []byte{4})}, After: 100 * time.Microsecond},
			{Asked: infer.LatestVersion, Err: infer.Errorf(infer.Unavailable, "no\n\"more\""), After: 200 * time.Microsecond},
		},
	}
}

func TestRecordsSurviveTheirFile(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"all":     func(*Record) {},
		"nothing": func(r *Record) { r.Request, r.Answers = Message{Asked: infer.LatestVersion}, nil },
	} {
		want := example()
		change(want)
		var b bytes.Buffer
		n, err := want.WriteTo(&b)
		if err != nil || n != int64(b.Len()) {
			t.Fatalf("%s: got %d of %d bytes, %v", name, n, b.Len(), err)
		}
		got, err := Read(bytes.NewReader(b.Bytes()), n)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
		}
		for end := range b.Len() { // cut off anywhere
			if _, err := Read(bytes.NewReader(b.Bytes()[:end]), int64(end)); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are taken for a record", name, end, b.Len())
			}
		}
	}
}

// TestFileIsAsDocumented has the two parts of a request that docs/record.md shows.
func TestFileIsAsDocumented(t *testing.T) {
	r := &Record{Model: "add_sub", Version: 1, Received: time.Date(2026, 11, 23, 4, 15, 0, 123456789, time.UTC), Took: 412 * time.Microsecond, Request: Message{
		Asked: infer.LatestVersion, ID: "7", Parameters: []infer.Parameter{{Name: "sequence_id", Kind: infer.IntParameter, Int: 3}}, Wanted: []string{"SUM"},
		Tensors: []Tensor{{Tensor: infer.Tensor{Name: "A", DataType: infer.FP32, Shape: []int64{4}, Data: make([]byte, 16)}}},
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
		r, err := Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if _, err := r.WriteTo(&again); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := Read(bytes.NewReader(again.Bytes()), int64(again.Len())); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}

// fakeCore has one model with the responses of a test.
type fakeCore struct {
	server.Core
	info  models.Info
	infer func(req *infer.Request, send infer.Sender) error
}

func (c *fakeCore) Target(string, int64) (models.Target, error) { return c, nil }

func (c *fakeCore) Info() *models.Info { return &c.info }

func (c *fakeCore) Infer(_ context.Context, req *infer.Request, send infer.Sender) error {
	return c.infer(req, send)
}

// lent counts its releases.
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

func tensor(name string, data ...byte) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(len(data))}, Data: data}
}

// recorded records one request to a model with this answer, and reads the files.
func recorded(t *testing.T, config Config, req *infer.Request, answer func(req *infer.Request, send infer.Sender) error) []*Record {
	t.Helper()
	return recordedIn(t.Context(), t, config, req, answer)
}

func recordedIn(ctx context.Context, t *testing.T, config Config, req *infer.Request, answer func(req *infer.Request, send infer.Sender) error) []*Record {
	t.Helper()
	config.Directory, config.Log = filepath.Join(t.TempDir(), "records"), zerolog.Nop()
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	core := &fakeCore{info: models.Info{Name: "m", Version: 2}, infer: answer}
	target, err := r.Around(core).Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	_ = target.Infer(ctx, req, func(r *infer.Response) { r.Release() })
	r.Close()
	if n := r.waiting.Load(); n != 0 {
		t.Errorf("%d bytes are charged in the end", n)
	}
	return readAll(t, config.Directory)
}

func readAll(t *testing.T, directory string) (list []*Record) {
	t.Helper()
	files, err := Files(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		r, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// TestReplayedRequestsAreNotRecorded checks that a replayed request reaches its model.
func TestReplayedRequestsAreNotRecorded(t *testing.T) {
	reached := 0
	answer := func(*infer.Request, infer.Sender) error { reached++; return nil }
	if list := recordedIn(server.Replayed(t.Context()), t, Config{}, &infer.Request{Model: "m"}, answer); len(list) != 0 || reached != 1 {
		t.Errorf("got %d records of %d requests, want none of 1", len(list), reached)
	}
}

// TestOnlyReadersOfARecordingHaveItsKey checks that others cannot read the file of the key, that
// the key is found from a model's folder and from a record, and that it is the same in a copy and
// for the next server.
func TestOnlyReadersOfARecordingHaveItsKey(t *testing.T) {
	directory := t.TempDir()
	open := func() *Recorder {
		t.Helper()
		r, err := New(Config{Directory: directory, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}
	r := open()
	key := Key(directory)
	if !keyForm.MatchString(key) || !r.IsKey(key) || !open().IsKey(key) {
		t.Errorf("got key %q, want one that each server with the directory knows", key)
	}
	for _, wrong := range []string{"", "1", key + "A", key[1:]} {
		if r.IsKey(wrong) {
			t.Errorf("%q is taken for the key", wrong)
		}
	}
	file := filepath.Join(directory, keyFile)
	if info, err := os.Stat(file); err != nil || info.Mode() != fileMode {
		t.Errorf("got mode %v, %v, want %v", info.Mode(), err, fs.FileMode(fileMode))
	}
	testkit.WriteFiles(t, directory, map[string]string{"m/1" + Extension: "x"})
	for _, path := range []string{filepath.Join(directory, "m"), filepath.Join(directory, "m", "1"+Extension)} {
		if got := Key(path); got != key {
			t.Errorf("%s: got %q, want %q", path, got, key)
		}
	}
	for _, text := range []string{"", "x\r\nEvil: 1", strings.Repeat("A", 27)} {
		if err := os.WriteFile(file, []byte(text), fileMode); err != nil {
			t.Fatal(err)
		}
		if got := Key(directory); got != "" {
			t.Errorf("%q: got %q, want no key", text, got)
		}
		if next := open(); !next.IsKey(Key(directory)) {
			t.Errorf("%q: the next server makes no key", text)
		}
	}
}

// TestPipesAreNoRecords checks that a pipe does not block, and that a file that claims to be huge
// takes no memory.
func TestPipesAreNoRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1"+Extension)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("got %v", err)
	}
	if key := Key(path); key != "" {
		t.Errorf("got key %q", key)
	}
	huge := path + "2"
	testkit.WriteFiles(t, filepath.Dir(huge), map[string]string{filepath.Base(huge): `{"nereid_record":1,"messages":[{"kind":"request","binary":1000000000000}]}` + "\n"})
	if err := os.Truncate(huge, 1<<41); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(huge); err == nil || !strings.Contains(err.Error(), "it has 2199023255552 bytes, want at most 536870912") {
		t.Errorf("got %v", err)
	}
}

// TestRequestsAreRecordedAsClientsSentThem checks the record of one request.
func TestRequestsAreRecordedAsClientsSentThem(t *testing.T) {
	released := 0
	req := &infer.Request{
		Model: "m", Version: 2, ID: "x", Correlation: infer.CorrelationID{Text: "s"}, Flags: infer.SequenceStart, Priority: 1, TimeoutMicros: 9,
		Parameters: []infer.Parameter{{Name: "token", Kind: infer.StringParameter, String: "secret"}, {Name: "p", Kind: infer.BoolParameter}},
		Inputs:     []infer.Tensor{tensor("A", 1, 2), tensor("HIDDEN", 3), {Name: "F", DataType: infer.Uint8, Shape: []int64{2}, Memory: foreign{lent{&released}, []byte{8, 9}}}},
		Outputs:    []string{"O"},
	}
	list := recorded(t, Config{Redact: []string{"HIDDEN", "token", "H2"}, Memory: budget.New(budget.Config{Limit: 1 << 30})}, req, func(_ *infer.Request, send infer.Sender) error {
		send(&infer.Response{Version: 2, ID: "x", Outputs: []infer.Tensor{tensor("O", 5), tensor("H2", 6), {Name: "W", DataType: infer.Uint8, Shape: []int64{1}, Memory: &infer.Written{Foreign: foreign{lent{&released}, []byte{7, 0}}, Bytes: 1}}}})
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
	show := func(tensors []Tensor) (s string) {
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

// TestWhatIsNotARequestIsNotRecorded checks that a rejected request is recorded with its error, and
// one that a version's successor gets is not.
func TestWhatIsNotARequestIsNotRecorded(t *testing.T) {
	request := func() *infer.Request {
		return &infer.Request{Model: "m", Version: infer.LatestVersion, Inputs: []infer.Tensor{tensor("A", 1)}}
	}
	if list := recorded(t, Config{}, request(), func(*infer.Request, infer.Sender) error { return infer.Errorf(infer.InvalidArg, "bad") }); len(list) != 1 || list[0].Answers[0].Err.Message != "bad" ||
		list[0].Answers[0].Err.Code != infer.InvalidArg {
		t.Errorf("refused: got %+v", list)
	}
	if list := recorded(t, Config{}, request(), func(*infer.Request, infer.Sender) error { return models.ErrReplaced }); len(list) != 0 {
		t.Errorf("replaced: got %d records", len(list))
	}
	if list := recorded(t, Config{Models: []string{"other"}}, request(), func(*infer.Request, infer.Sender) error { return nil }); len(list) != 0 {
		t.Errorf("of another model: got %d records", len(list))
	}
}

// TestBodiesThatAreOneTensor checks that a raw body is recorded as a request with a tensor: an
// element of BYTES has its length before it.
func TestBodiesThatAreOneTensor(t *testing.T) {
	for _, test := range []struct {
		datatype infer.DataType
		want     string
	}{{infer.Uint8, "\x01\x02"}, {infer.Bytes, "\x02\x00\x00\x00\x01\x02"}} {
		raw := &infer.Request{Model: "m", Version: infer.LatestVersion, Raw: true, Inputs: []infer.Tensor{{Data: []byte{1, 2}}}}
		list := recorded(t, Config{}, raw, func(req *infer.Request, _ infer.Sender) error {
			req.Inputs[0].Name, req.Inputs[0].DataType, req.Inputs[0].Shape = "R", test.datatype, []int64{2}
			return nil
		})
		if len(list) != 1 || list[0].Request.Tensors[0].Name != "R" || string(list[0].Request.Tensors[0].Data) != test.want {
			t.Errorf("%s: got %+v, want %q", test.datatype, list, test.want)
		}
	}
	refused := &infer.Request{Model: "m", Raw: true, Inputs: []infer.Tensor{{Data: []byte{1, 2}}}}
	list := recorded(t, Config{}, refused, func(*infer.Request, infer.Sender) error { return infer.Errorf(infer.InvalidArg, "two inputs") })
	if len(list) != 1 || string(list[0].Request.Tensors[0].Data) != "\x01\x02" {
		t.Errorf("refused: got %+v", list)
	}
}

// TestRecordingIsBounded checks the bounds of the number of files, of their bytes, and of waiting
// records.
func TestRecordingIsBounded(t *testing.T) {
	var log testkit.Buffer
	directory := t.TempDir()
	send := func(config Config, n, size int) *Recorder {
		config.Directory, config.Log = directory, zerolog.New(&log)
		r, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		core := r.Around(&fakeCore{info: models.Info{Name: "m", Version: 1}, infer: func(*infer.Request, infer.Sender) error { return nil }})
		for range n {
			target, err := core.Target("m", 1)
			if err == nil {
				err = target.Infer(t.Context(), &infer.Request{Inputs: []infer.Tensor{tensor("A", make([]byte, size)...)}}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		return r
	}
	if r := send(Config{MaxRequests: 5}, 3, 10); r.Written() != 3 || r.Lost() != 0 || !r.Open() {
		t.Errorf("got %d written, %d lost, open %t, want 3, 0, true", r.Written(), r.Lost(), r.Open())
	}
	if got := len(readAll(t, directory)); got != 3 {
		t.Errorf("got %d records, want 3", got)
	}
	// Existing records count. The third comes when the directory is full, and is lost if it was
	// already waiting.
	if r := send(Config{MaxRequests: 5}, 3, 10); r.Written() != 2 || r.Lost() > 1 || r.Open() {
		t.Errorf("got %d written, %d lost, open %t, want 2, at most 1, false", r.Written(), r.Lost(), r.Open())
	}
	if got := len(readAll(t, directory)); got != 5 || !strings.Contains(log.String(), "has 5 of at most 5 requests (--record-max-requests)") {
		t.Errorf("got %d records, want 5:\n%s", got, log.String())
	}
	send(Config{MaxBytes: 10_000}, 5, 5_000)
	if got := len(readAll(t, directory)); got != 6 || !strings.Contains(log.String(), "of at most 10000 bytes (--record-max-bytes)") {
		t.Errorf("got %d records, want 6:\n%s", got, log.String())
	}
	r := send(Config{}, 1, maxWaitingBytes)
	if got := len(readAll(t, directory)); got != 6 || r.Lost() != 1 || r.Written() != 0 || !strings.Contains(log.String(), "1 requests were not recorded, as too much waited") {
		t.Errorf("got %d records and %d dropped:\n%s", got, r.Lost(), log.String())
	}
}

// TestDirectoryThatCannotBeWritten checks that only the recording ends, not the requests.
func TestDirectoryThatCannotBeWritten(t *testing.T) {
	directory := t.TempDir()
	testkit.WriteFiles(t, directory, map[string]string{"m": "a file where the folder of the model would be", "x/1" + Extension + temporary: "half"})
	var log testkit.Buffer
	r, err := New(Config{Directory: directory, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(directory, "x/1"+Extension+temporary)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what another server was writing is there: %v", err)
	}
	core := &fakeCore{info: models.Info{Name: "m"}, infer: func(*infer.Request, infer.Sender) error { return nil }}
	around := r.Around(core)
	target, err := around.Target("m", 1)
	if err == nil {
		err = target.Infer(t.Context(), &infer.Request{}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, r.full.Load)
	if now, err := around.Target("m", 1); err != nil || now != models.Target(core) {
		t.Errorf("got %T, %v, want the target itself", now, err)
	}
	r.Close()
	if !strings.Contains(log.String(), "requests are no longer recorded") {
		t.Errorf("the log has %s", log.String())
	}
	if _, err := New(Config{Directory: filepath.Join(directory, "m")}); err == nil {
		t.Error("a file is taken for a directory")
	}
}

// TestNothingIsRecordedUnlessAsked checks that the front ends get the core itself without a
// directory.
func TestNothingIsRecordedUnlessAsked(t *testing.T) {
	r, err := New(Config{})
	core := &fakeCore{}
	if err != nil || r != nil || r.Around(core) != server.Core(core) {
		t.Errorf("got %v, %v", r, err)
	}
	r.Close()
}

// TestTextsOfRecordsAreCharged records a request and a response with large texts.
func TestTextsOfRecordsAreCharged(t *testing.T) {
	account := budget.New(budget.Config{Limit: 1 << 30})
	r, err := New(Config{Directory: t.TempDir(), Memory: account})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const size = 1 << 20
	text := strings.Repeat("x", size)
	request := &infer.Request{ID: text, Outputs: []string{text}, Inputs: []infer.Tensor{{Name: text, DataType: infer.Bytes, Shape: make([]int64, size/8)}}}
	p := r.begin(t.Context(), request, &models.Info{Name: "m"})
	if p == nil || p.size < 4*size {
		t.Fatalf("got %+v, want at least %d bytes charged", p, 4*size)
	}
	before := p.size
	p.answer(t.Context(), &infer.Response{ID: text, Err: &infer.Error{Message: text, Detail: text}})
	if got := p.size - before; got < 3*size {
		t.Errorf("a response: got %d bytes charged, want at least %d", got, 3*size)
	}
	p.release()
}
