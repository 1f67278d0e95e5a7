package tracing

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// clock counts up.
func clock() func() int64 {
	var n atomic.Int64
	return func() int64 { return n.Add(1000) }
}

// tracerOf makes a Tracer in mode triton that samples each request and writes to a temporary file.
func tracerOf(t *testing.T, change func(*Config)) (tracer *Tracer, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "trace.json")
	c := Config{Level: Timestamps, Rate: 1, Count: -1, Now: clock(), Log: zerolog.Nop(), Settings: []Pair{{SettingFile, path}}}
	if change != nil {
		change(&c)
	}
	tracer, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tracer.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return tracer, path
}

func noHeader(string) (string, bool) { return "", false }

// request samples and executes a request, and reports whether it is traced.
func request(tracer *Tracer, model, id string) bool {
	if !tracer.On() {
		return false
	}
	root := tracer.Sample(model, false, noHeader)
	root.Begin(model, 1, id, 5)
	root.Responded(true)
	root.Finish()
	return root != nil
}

// requests samples n requests, and returns the numbers of the traced ones, from 1.
func requests(tracer *Tracer, model string, n int) (traced []int) {
	for i := range n {
		if request(tracer, model, fmt.Sprint(i+1)) {
			traced = append(traced, i+1)
		}
	}
	return traced
}

// inFile returns the ids of the requests in a trace file, or "" if the file does not exist.
func inFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	var entries []struct {
		Request string `json:"request_id"`
	}
	if err := json.Unmarshal(content, &entries); err != nil {
		t.Fatalf("%s is no closed array of JSON: %v\n%s", path, err, content)
	}
	var ids []string
	for _, e := range entries {
		if e.Request != "" {
			ids = append(ids, e.Request)
		}
	}
	return strings.Join(ids, " ")
}

func given[T any](v T) Update[T] { return Update[T]{Given: true, Value: v} }

// change changes a setting, and fails the test if the change is rejected.
func change(t *testing.T, tracer *Tracer, model string, c Change) {
	t.Helper()
	if err := tracer.Change(model, c); err != nil {
		t.Fatalf("change %+v of %q: %v", c, model, err)
	}
}

func shown(tracer *Tracer, model string) string {
	var b strings.Builder
	for _, s := range tracer.Settings(model) {
		fmt.Fprintf(&b, "%s=%s ", strings.TrimPrefix(s.Key, "trace_"), strings.Join(s.Values, "+"))
	}
	return strings.TrimSpace(b.String())
}

func TestEveryRateThRequestIsTraced(t *testing.T) {
	tracer, _ := tracerOf(t, func(c *Config) { c.Rate = 3 })
	if got, want := requests(tracer, "m", 8), []int{3, 6}; !slices.Equal(got, want) {
		t.Errorf("requests that are traced: got %v, want %v", got, want)
	}
	change(t, tracer, "", Change{Rate: given[uint32](2)})
	if got, want := requests(tracer, "m", 4), []int{2, 4}; !slices.Equal(got, want) {
		t.Errorf("after a change, whose count begins anew: got %v, want %v", got, want)
	}
}

func TestTheCountIsUsedUp(t *testing.T) {
	tracer, path := tracerOf(t, func(c *Config) { c.Rate, c.Count = 2, 2 })
	if got, want := requests(tracer, "m", 9), []int{2, 4}; !slices.Equal(got, want) {
		t.Errorf("requests that are traced: got %v, want %v", got, want)
	}
	if tracer.On() {
		t.Error("the tracer is on, with its count used up")
	}
	if got := shown(tracer, ""); !strings.Contains(got, "count=0 ") {
		t.Errorf("clients see %s, want a count of 0", got)
	}
	tracer.recorder.retire(nil) // after the traces
	if got := inFile(t, path); got != "2 4" {
		t.Errorf("the file has requests %q when the count is used up, want 2 4", got)
	}
	change(t, tracer, "", Change{Count: given[int32](1)})
	requests(tracer, "m", 2)
	tracer.recorder.retire(nil)
	if got := inFile(t, path); got != "2 4 2" {
		t.Errorf("the file has requests %q after one more, want 2 4 2", got)
	}
}

// TestACountThatIsUsedUpHasAFileOfItsOwn checks that traces of a count go to a numbered file once
// the count is used up, and that earlier traces stay in the other file, as in Triton.
func TestACountThatIsUsedUpHasAFileOfItsOwn(t *testing.T) {
	tracer, path := tracerOf(t, nil)
	requests(tracer, "m", 20)
	change(t, tracer, "", Change{Count: given[int32](5)})
	requests(tracer, "m", 20)
	tracer.recorder.retire(nil)
	if before, counted := inFile(t, path), inFile(t, path+".0"); len(strings.Fields(before)) != 20 || counted != "1 2 3 4 5" {
		t.Errorf("the files have requests %q and %q, want 20 and the first 5 of the others", before, counted)
	}
	change(t, tracer, "", Change{Count: given[int32](3), Frequency: given[uint32](2)})
	requests(tracer, "m", 9)
	change(t, tracer, "", Change{Count: given[int32](5), Frequency: Update[uint32]{Given: true, Clear: true}})
	requests(tracer, "m", 1)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path + ".1": "1 2", path + ".2": "3", path + ".3": ""} {
		if got := inFile(t, name); got != want {
			t.Errorf("%s has requests %q, want %q", filepath.Base(name), got, want)
		}
	}
	if got := len(strings.Fields(inFile(t, path))); got != 21 {
		t.Errorf("the file has %d requests at the end, want 21: its count is not used up", got)
	}
}

// TestFilesAreBounded checks that trace files do not exceed their limit, and that only their owner
// can read them.
func TestFilesAreBounded(t *testing.T) {
	for _, frequency := range []uint32{0, 2} {
		var log strings.Builder
		var size int64
		for _, most := range []string{"", "1000"} {
			tracer, path := tracerOf(t, func(c *Config) {
				if c.Log = zerolog.New(&log); most != "" {
					c.Settings = append(c.Settings, Pair{SettingMost, most})
				}
			})
			change(t, tracer, "", Change{Frequency: given(frequency)})
			for range 10 {
				requests(tracer, "m", 2)
				change(t, tracer, "", Change{Rate: given[uint32](1)})
			}
			if err := tracer.Close(t.Context()); err != nil {
				t.Error(err)
			}
			files, err := filepath.Glob(path + "*")
			if err != nil || len(files) == 0 {
				t.Fatalf("got %q, %v", files, err)
			}
			size = 0
			for _, file := range files {
				info, err := os.Stat(file)
				if err != nil || info.Mode() != fileMode {
					t.Errorf("%s: got %v, %v, want mode %v", file, info.Mode(), err, os.FileMode(fileMode))
				}
				inFile(t, file)
				size += info.Size()
			}
			if most == "" && (size < 2000 || log.Len() > 0) {
				t.Errorf("frequency %d: got %d bytes without a bound, and %s", frequency, size, log.String())
			}
		}
		if size == 0 || size > 1000 {
			t.Errorf("frequency %d: the files have %d bytes, want at most 1000", frequency, size)
		}
		if n := strings.Count(log.String(), "traces are no longer written: the trace files have "); n != 1 || strings.Count(log.String(), "traces were dropped") != 1 {
			t.Errorf("frequency %d: the log has\n%s", frequency, log.String())
		}
	}
	if _, err := New(Config{Now: clock(), Settings: []Pair{{SettingMost, "0"}}}); err == nil || !strings.Contains(err.Error(), `trace setting max-bytes is "0", want a number of bytes, 1 or more`) {
		t.Errorf("got %v", err)
	}
}

func TestFilesOfEachFrequency(t *testing.T) {
	tracer, path := tracerOf(t, nil)
	requests(tracer, "m", 2)
	tracer.recorder.retire(nil)
	if got := inFile(t, path); got != "" {
		t.Errorf("the file has requests %q before the end, want none", got)
	}
	change(t, tracer, "", Change{Frequency: given[uint32](2)})
	if got := inFile(t, path); got != "1 2" {
		t.Errorf("the file has requests %q when the setting is replaced, want 1 2", got)
	}
	requests(tracer, "m", 5)
	tracer.recorder.retire(nil)
	for name, want := range map[string]string{path: "1 2", path + ".0": "1 2", path + ".1": "3 4", path + ".2": ""} {
		if got := inFile(t, name); got != want {
			t.Errorf("%s has requests %q, want %q", filepath.Base(name), got, want)
		}
	}
	change(t, tracer, "", Change{Frequency: Update[uint32]{Given: true, Clear: true}})
	requests(tracer, "m", 1)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "1 2 1", path + ".2": "5"} {
		if got := inFile(t, name); got != want {
			t.Errorf("%s has requests %q at the end, want %q", filepath.Base(name), got, want)
		}
	}
	if left, _ := filepath.Glob(path + "*.part"); left != nil {
		t.Errorf("files are left: %v", left)
	}
	if request(tracer, "m", "late") {
		t.Error("a request is traced after Close")
	}
}

// TestATraceThatOutlivesItsSetting checks that a trace that ends after its setting was replaced is
// still written.
func TestATraceThatOutlivesItsSetting(t *testing.T) {
	tracer, path := tracerOf(t, nil)
	root := tracer.Sample("m", false, noHeader)
	root.Begin("m", 1, "old", 1)
	change(t, tracer, "", Change{Rate: given[uint32](5)})
	root.Responded(true)
	root.Finish()
	tracer.recorder.retire(nil)
	if got := inFile(t, path); got != "old" {
		t.Errorf("the file has requests %q, want old", got)
	}
}

func TestModelsOverrideAndFallBack(t *testing.T) {
	tracer, path := tracerOf(t, func(c *Config) {
		c.Level, c.Rate, c.Settings = Off, 7, append(c.Settings, Pair{"log-frequency", "9x"}, Pair{"foo", "bar"})
	})
	tail := " log_frequency=9 file=" + path + " mode=triton foo=bar"
	expect := func(model, want string) {
		t.Helper()
		if got := shown(tracer, model); got != want+tail {
			t.Errorf("settings of %q: got %s, want %s", model, got, want+tail)
		}
	}
	cleared := Update[uint32]{Given: true, Clear: true}
	expect("", "level=OFF rate=7 count=-1")
	change(t, tracer, "m", Change{Rate: given[uint32](3)})
	change(t, tracer, "", Change{Rate: given[uint32](8), Count: given[int32](4)})
	expect("m", "level=OFF rate=3 count=4")
	expect("other", "level=OFF rate=8 count=4")
	if tracer.On() {
		t.Error("the tracer is on, with all levels off")
	}
	change(t, tracer, "m", Change{Level: given(Timestamps)})
	if got := requests(tracer, "m", 3); !slices.Equal(got, []int{3}) || requests(tracer, "other", 20) != nil {
		t.Errorf("with a level for m alone, of 3 requests for m %v are traced, want the third, and none for other", got)
	}
	expect("m", "level=TIMESTAMPS rate=3 count=3")
	expect("", "level=OFF rate=8 count=4")
	change(t, tracer, "m", Change{Level: Update[Level]{Given: true, Clear: true}, Rate: cleared})
	expect("m", "level=OFF rate=8 count=4")
	if tracer.table.models["m"] != nil {
		t.Error("a model that overrides nothing has a setting of its own")
	}
	change(t, tracer, "", Change{Rate: cleared, Count: Update[int32]{Given: true, Clear: true}})
	expect("", "level=OFF rate=7 count=-1")
}

// TestModelsWithSettingsAreBounded checks that settings for ever more models are refused, until
// those of another model are cleared.
func TestModelsWithSettingsAreBounded(t *testing.T) {
	tracer, _ := tracerOf(t, func(*Config) {})
	for i := range maxOwn {
		change(t, tracer, strconv.Itoa(i), Change{Rate: given[uint32](3)})
	}
	change(t, tracer, "0", Change{Rate: given[uint32](4)})
	if err := tracer.Change("another", Change{Rate: given[uint32](3)}); err == nil || infer.AsError(err).Code != infer.Unavailable {
		t.Errorf("one model too many: got error %v, want code Unavailable", err)
	}
	change(t, tracer, "0", Change{Rate: Update[uint32]{Given: true, Clear: true}})
	change(t, tracer, "another", Change{Rate: given[uint32](3)})
}

func TestCombinationsThatTraceNothingAreRefused(t *testing.T) {
	withFile := func(*Config) {}
	withoutFile := func(c *Config) { c.Settings = nil }
	for _, test := range []struct {
		config func(*Config)
		change Change
		want   string
	}{
		{withFile, Change{Rate: given[uint32](0)}, "sample rate must be non-zero"},
		{withFile, Change{Count: given[int32](0)}, ""},
		{withoutFile, Change{Rate: given[uint32](5)}, "trace file name is not given"},
		{withoutFile, Change{Rate: given[uint32](0)}, "sample rate must be non-zero"},
	} {
		tracer, _ := tracerOf(t, test.config)
		before := shown(tracer, "")
		for _, model := range []string{"", "m"} {
			err := tracer.Change(model, test.change)
			if want := "Attempting to set invalid trace setting :" + test.want; err == nil || err.Error() != want {
				t.Errorf("%+v of %q: got error %v, want %q", test.change, model, err, want)
			}
		}
		if got := shown(tracer, ""); got != before {
			t.Errorf("a refusal has changed the settings from %s to %s", before, got)
		}
		off := test.change
		off.Level = given(Off)
		if err := tracer.Change("", off); err != nil {
			t.Errorf("%+v: got error %v, want none", off, err)
		}
	}
}

func TestNumbersAreReadAsTritonReadsThem(t *testing.T) {
	for _, test := range []struct {
		text string
		want uint32
		err  string
	}{
		{"5", 5, ""}, {" 6x", 6, ""}, {"+3", 3, ""}, {"-1", 4294967295, ""}, {"-5", 4294967291, ""}, {"2147483647", 2147483647, ""},
		{"x", 0, "Unable to parse 'trace_rate', got: x"}, {"", 0, "Unable to parse 'trace_rate', got: "},
		{"- 1", 0, "Unable to parse 'trace_rate', got: - 1"},
		{"2147483648", 0, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 2147483648"},
	} {
		var c Change
		err := c.ReadRate(test.text)
		if test.err == "" && (err != nil || c.Rate != given(test.want)) || test.err != "" && (err == nil || err.Error() != test.err || c.Rate.Given) {
			t.Errorf("rate %q: got %+v and error %v, want %d and %q", test.text, c.Rate, err, test.want, test.err)
		}
	}
	for text, want := range map[string]string{
		"-2": "Unable to parse 'trace_count'. Expecting value >= -1, got:_-2", "x": "Unable to parse 'trace_count', got: x",
		"99999999999": "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 99999999999",
	} {
		var c Change
		if err := c.ReadCount(text, "_"); err == nil || err.Error() != want {
			t.Errorf("count %q: got error %v, want %q", text, err, want)
		}
	}
	var c Change
	if err := c.ReadFrequency("x"); err == nil || err.Error() != "Unable to parse 'log_frequency', got: x" {
		t.Errorf("frequency x: got error %v", err)
	}
}

func TestLevelsAreReadAsTritonReadsThem(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  Update[Level]
		err   bool
	}{
		{[]string{"TENSORS", "TIMESTAMPS", "TENSORS"}, given(Timestamps | Tensors), false},
		{[]string{"X", "TIMESTAMPS"}, given(Timestamps), false}, {[]string{"OFF"}, given(Off), false},
		{[]string{"timestamps"}, Update[Level]{}, false}, {nil, Update[Level]{}, false},
		{[]string{"OFF", "TIMESTAMPS"}, Update[Level]{}, true}, {[]string{"TENSORS", "OFF"}, Update[Level]{}, true},
	} {
		var c Change
		if err := c.ReadLevels(test.names); (err != nil) != test.err || c.Level != test.want {
			t.Errorf("levels %v: got %+v and error %v, want %+v", test.names, c.Level, err, test.want)
		}
	}
}

// TestLostFilesAreNoError checks that traces that cannot be written, because a directory is at the
// path of the file, are only logged.
func TestLostFilesAreNoError(t *testing.T) {
	var log strings.Builder
	directory := t.TempDir()
	tracer, _ := tracerOf(t, func(c *Config) {
		c.Log, c.Settings = zerolog.New(&log), []Pair{{SettingFile, directory}}
	})
	for range 2 {
		requests(tracer, "m", 1)
		change(t, tracer, "", Change{Rate: given[uint32](1)})
	}
	requests(tracer, "m", 1)
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "traces are lost"); n != 1 {
		t.Errorf("the log says %d times that traces are lost, want once:\n%s", n, log.String())
	}
}

// TestEntriesOfFiles compares a trace file byte by byte with the expected text.
func TestEntriesOfFiles(t *testing.T) {
	tracer, path := tracerOf(t, func(c *Config) { c.Level = Timestamps | Tensors })
	root := tracer.Sample("m", false, noHeader)
	root.Stamp(trace.HTTPReceiveStart)
	root.Begin("ens\"1", 2, "r", 5)
	child := root.Child()
	child.Begin("m", 3, "", 6)
	child.Tensor(trace.QueueInput, "IN", "BYTES", []int64{1, 2}, []byte("\x03\x00\x00\x00a\"\xff\x00\x00\x00\x00"))
	child.Refused()
	root.Responded(true)
	root.Finish()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := `[{"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":1000}]},` +
		`{"id":1,"model_name":"ens\"1","model_version":2,"request_id":"r"},` +
		`{"id":1,"timestamps":[{"name":"REQUEST_START","ns":5}]},` +
		`{"id":1,"timestamps":[{"name":"INFER_RESPONSE_COMPLETE","ns":3000}]},` +
		`{"id":1,"timestamps":[{"name":"REQUEST_END","ns":4000}]},` +
		`{"id":2,"model_name":"m","model_version":3,"parent_id":1},` +
		`{"id":2,"timestamps":[{"name":"REQUEST_START","ns":6}]},` +
		`{"id":2,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"IN","data":"\"a\"` + "\ufffd" + `\",\"\"","shape":"1,2","dtype":"BYTES"}},` +
		`{"id":2,"timestamps":[{"name":"REQUEST_END","ns":2000}]}]`
	want = strings.Replace(want, `"\"a\"`+"\ufffd", `"\"a\"`+"\ufffd", 1)
	if err != nil || string(got) != want {
		t.Errorf("got error %v and\n%s\nwant\n%s", err, got, want)
	}
}

func TestADisabledTracer(t *testing.T) {
	tracer := Disabled()
	if got, want := shown(tracer, ""), "level=OFF rate=1000 count=-1 log_frequency=0 file= mode=triton"; got != want {
		t.Errorf("settings: got %s, want %s", got, want)
	}
	change(t, tracer, "", Change{Rate: given[uint32](1)})
	if err := tracer.Change("", Change{Level: given(Timestamps)}); err == nil || tracer.On() {
		t.Errorf("a level was accepted without a file: error %v", err)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var none *Tracer
	if none.On() || none.Close(t.Context()) != nil {
		t.Error("nil is not a tracer that is off")
	}
}

// TestOffCostsNothing checks that a request allocates nothing while tracing is off.
func TestOffCostsNothing(t *testing.T) {
	tracer, _ := tracerOf(t, func(c *Config) { c.Level = Off })
	if n := testing.AllocsPerRun(100, func() {
		if tracer.On() {
			t.Error("the tracer is on")
		}
	}); n != 0 {
		t.Errorf("a request costs %v allocations, want 0", n)
	}
}

// TestTextsOfTensorsAreOnTheAccount checks that traced tensors are charged, that tensors that do
// not fit into the account are omitted, and that all charges are returned once the trace is
// written.
func TestTextsOfTensorsAreOnTheAccount(t *testing.T) {
	account := budget.New(budget.Config{Limit: 64 << 20})
	tracer, path := tracerOf(t, func(c *Config) { c.Level, c.Memory = Tensors, account })
	root := tracer.Sample("m", false, noHeader)
	root.Begin("m", 1, "", 5)
	free := account.Most(budget.JSON)
	root.Tensor(trace.QueueInput, "small", "INT32", []int64{1}, []byte{7, 0, 0, 0})
	used := account.Used(budget.JSON)
	root.Tensor(trace.QueueInput, "large", "UINT8", []int64{free}, make([]byte, free/4)) // each byte can become four bytes, in three copies
	root.Tensor(trace.QueueInput, "after", "INT32", []int64{1}, []byte{8, 0, 0, 0})
	if now := account.Used(budget.JSON); used <= 0 || now != 2*used {
		t.Errorf("one text takes %d bytes, two take %d", used, now)
	}
	root.Responded(true)
	root.Finish()
	testkit.Eventually(t, time.Minute, func() bool { return account.Used(budget.JSON) == 0 })
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if text := string(content); err != nil || strings.Count(text, "TENSOR_QUEUE_INPUT") != 2 || !strings.Contains(text, `"data":"7"`) || !strings.Contains(text, `"data":"8"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestDroppedTracesGiveTheirMemoryBack checks that a trace that ends after its tracer was closed
// returns its charges.
func TestDroppedTracesGiveTheirMemoryBack(t *testing.T) {
	account := budget.New(budget.Config{Limit: 64 << 20})
	tracer, _ := tracerOf(t, func(c *Config) { c.Level, c.Memory = Tensors, account })
	root := tracer.Sample("m", false, noHeader)
	root.Begin("m", 1, "r", 5)
	root.Tensor(trace.QueueInput, "small", "INT32", []int64{1}, []byte{7, 0, 0, 0})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	root.Responded(true)
	root.Finish()
	if n := account.Used(budget.JSON); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

// TestActivitiesInFiles checks that files have the backends' names unchanged, and report entries
// that were left out.
func TestActivitiesInFiles(t *testing.T) {
	var log testkit.Buffer
	tracer, path := tracerOf(t, func(c *Config) { c.Log = zerolog.New(&log) })
	root := tracer.Sample("m", false, noHeader)
	root.Begin("m", 1, "r", 5)
	for _, name := range []string{"CUSTOM_ACTIVITY_START", "a\"\n{"} {
		root.Activity(name, 7)
	}
	for range 1000 {
		root.Activity("many", 7)
	}
	root.Responded(true)
	root.Finish()
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(content) || !strings.Contains(string(content), `{"id":1,"timestamps":[{"name":"CUSTOM_ACTIVITY_START","ns":7}]},{"id":1,"timestamps":[{"name":"a\"\n{","ns":7}]},`) {
		t.Errorf("the file has %.600s", content)
	}
	if !strings.Contains(log.String(), `"activities":2`) {
		t.Errorf("the log does not say that 2 activities are missing: %s", log.String())
	}
}
