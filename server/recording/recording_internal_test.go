package recording

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// TestOnlyReadersOfARecordingHaveItsKey checks that other users cannot read the key file, that the
// key is found from a model's directory and from a record, and that it stays the same in a copy and
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

// TestRecordingIsBounded checks the limits on the number of records, on their bytes and on records
// waiting to be written.
func TestRecordingIsBounded(t *testing.T) {
	var log testkit.Buffer
	directory := t.TempDir()
	send := func(config Config, n, size int) *Recorder {
		config.Directory, config.Log = directory, zerolog.New(&log)
		r, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		core := r.Around(&FakeCore{info: models.Info{Name: "m", Version: 1}, infer: func(*infer.Request, infer.Sender) error { return nil }})
		for range n {
			target, err := core.Target("m", 1)
			if err == nil {
				err = target.Infer(t.Context(), &infer.Request{Inputs: []infer.Tensor{UintTensor("A", make([]byte, size)...)}}, nil)
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
	// Existing records count. The third record arrives when the directory is full, and is lost if
	// it was already waiting.
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
	if got := len(readAll(t, directory)); got != 6 || r.Lost() != 1 || r.Written() != 0 || !strings.Contains(log.String(), "1 requests were not recorded, because too much data was waiting") {
		t.Errorf("got %d records and %d dropped:\n%s", got, r.Lost(), log.String())
	}
}

// TestDirectoryThatCannotBeWritten checks that a write error ends only the recording, not the
// requests.
func TestDirectoryThatCannotBeWritten(t *testing.T) {
	directory := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m": "a file where the folder of the model would be", "x/1" + Extension + temporary: "half"})
	var log testkit.Buffer
	r, err := New(Config{Directory: directory, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(directory, "x/1"+Extension+temporary)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what another server was writing is there: %v", err)
	}
	core := &FakeCore{info: models.Info{Name: "m"}, infer: func(*infer.Request, infer.Sender) error { return nil }}
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

// TestTextsOfRecordsAreCharged checks that large texts of a recorded request and response are
// charged.
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
