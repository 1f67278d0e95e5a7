package warmup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
	"github.com/nereid-serving/nereid/scheduler"
)

// warmupConfig is the config of the model that the samples are for.
const warmupConfig = `name: "m" max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ 2 ] optional: true }, { name: "YES" data_type: TYPE_BOOL dims: [ 64 ] optional: true } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ]
`

// executions is an observer that records the batch sizes.
type executions struct{ sizes []int }

func (*executions) Pending(int)                    {}
func (*executions) Failed(scheduler.Reason, int64) {}
func (e *executions) Executed(x *scheduler.Execution) {
	e.sizes = append(e.sizes, len(x.Requests))
}

// newWarmup returns the warm-up of a config with these samples. Their files are in the directory of
// a model m below root.
func newWarmup(t *testing.T, samples string, files map[string]string) (w *Samples, counts *executions, root string) {
	t.Helper()
	config := &kserve.ModelConfig{}
	if err := prototext.Unmarshal([]byte(warmupConfig+samples), config); err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{"m/warmup/directory/": ""})
	testkit.WriteFiles(t, filepath.Join(root, "m", "warmup"), files)
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	counts = &executions{}
	return &Samples{
		Configured: config.GetModelWarmup(), Signature: signature.New("m", config), Model: "m", Version: 1, Observer: counts, Log: zerolog.Nop(),
		Open: func() (*repository.Folder, error) { return opened.Open(repository.Identity{Name: "m"}) },
	}, counts, root
}

// sample returns a warm-up with one sample. Each input is a name, type, dims and data source.
func sample(rest string, inputs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model_warmup [ { name: \"s\" %s ", rest)
	for i := 0; i+3 < len(inputs); i += 4 {
		fmt.Fprintf(&b, "inputs { key: %q value { data_type: TYPE_%s dims: [ %s ] %s } } ", inputs[i], inputs[i+1], inputs[i+2], inputs[i+3])
	}
	return b.String() + "} ]\n"
}

// onlyBatch returns the batch of the only sample.
func onlyBatch(w *Samples) (*sampleBatch, error) {
	directory, err := w.Open()
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	return w.batch(nil, directory, w.Configured[0])
}

func TestSamplesHaveTheDataThatTheyName(t *testing.T) {
	const zero, random = "zero_data: false", "random_data: true"
	const note = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
	one := "batch_size: 1"
	files := map[string]string{"three": "abc", "nine": "123456789", "texts": "\x01\x00\x00\x00a\x00\x00\x00\x00", "cut": "\x01\x00\x00\x00a\x05\x00\x00\x00ab"}
	for name, test := range map[string]struct {
		samples string
		want    string // the inputs of the first request
		refusal string
	}{
		"zeros":             {sample(one, "IN", "INT32", "2", zero), "IN[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		"a file":            {sample(one, "IN", "INT32", "2", `input_data_file: "nine"`), "IN[1,2]=12345678", ""},
		"texts":             {sample(one, "IN", "INT32", "2", zero, "TEXT", "STRING", "2", zero), "IN[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00 TEXT[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		"texts at random":   {sample(one, "IN", "INT32", "2", zero, "TEXT", "STRING", "2", random), "IN[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00 TEXT[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		"texts of a file":   {sample(one, "IN", "INT32", "2", zero, "TEXT", "STRING", "2", `input_data_file: "texts"`), "IN[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00 TEXT[1,2]=\x01\x00\x00\x00a\x00\x00\x00\x00", ""},
		"what is no input":  {sample(one, "IN", "INT32", "2", zero, "C", "UINT8", "1", zero), "IN[1,2]=\x00\x00\x00\x00\x00\x00\x00\x00 C[1,1]=\x00", ""},
		"a file too small":  {sample(one, "IN", "INT32", "2", `input_data_file: "three"`), "", "INVALID_ARG [request id: <id_unknown>] warmup setting expects 8 bytes, but the data provided from threeonly has 3 bytes"},
		"no file":           {sample(one, "IN", "INT32", "2", `input_data_file: "none"`), "", "INTERNAL failed to open text file for read /repository/m/warmup/none: No such file or directory"},
		"a directory":       {sample(one, "IN", "INT32", "2", `input_data_file: "directory"`), "", "INTERNAL failed to open text file for read /repository/m/warmup/directory: Is a directory"},
		"a file elsewhere":  {sample(one, "IN", "INT32", "2", `input_data_file: "../../../x"`), "", "INTERNAL failed to open text file for read /repository/m/../../x: path escapes from parent"},
		"a variable size":   {sample(one, "IN", "INT32", "-1", zero), "", "INVALID_ARG warmup setting expects all variable-size dimensions are specified for input 'IN'"},
		"no kind of data":   {sample(one, "IN", "INT32", "2", ""), "", "INVALID_ARG [request id: <id_unknown>] warmup setting expects input 'IN' to have input_data_type set"},
		"another type":      {sample(one, "IN", "FP32", "2", zero), "", "INVALID_ARG [request id: <id_unknown>] inference input 'IN' data-type is 'FP32', but model 'm' expects 'INT32'"},
		"another shape":     {sample(one, "IN", "INT32", "3", zero), "", "INVALID_ARG [request id: <id_unknown>] unexpected shape for input 'IN' for model 'm'. Expected [-1,2], got [1,3]. " + note},
		"a negative shape":  {sample(one, "IN", "INT32", "-2", zero), "", "INVALID_ARG [request id: <id_unknown>] unexpected shape for input 'IN' for model 'm'. Expected [-1,2], got [1,-2]. " + note},
		"an input too few":  {sample(one, "C", "INT32", "1", zero), "", "INVALID_ARG [request id: <id_unknown>] expected number of inputs between 1 and 3 but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['IN']. Please provide all required input(s)."},
		"a control awry":    {sample(one, "IN", "INT32", "2", zero, "C", "INT32", "-3", zero), "", "INVALID_ARG [request id: <id_unknown>] tensor 'C' contains an invalid dimension in shape [1,-3]"},
		"a control of none": {sample(one, "IN", "INT32", "2", zero, "C", "INVALID", "1", zero), "", "INVALID_ARG [request id: <id_unknown>] warmup setting expects input 'C' to have a data type"},
		"texts awry":        {sample(one, "IN", "INT32", "2", zero, "C", "STRING", "3", `input_data_file: "texts"`), "", "INVALID_ARG [request id: <id_unknown>] expected 3 string elements for inference input 'C' for model 'm', got 2"},
		"texts cut off":     {sample(one, "IN", "INT32", "2", zero, "TEXT", "STRING", "2", `input_data_file: "cut"`), "", "INVALID_ARG failed to run warmup sample 's': incomplete string data for inference input 'TEXT', expecting string of length 5 but only 2 bytes available; "},
		"more than fits":    {sample(one, "IN", "INT32", "2", zero, "C", "INT64", "4294967296", zero), "", "INVALID_ARG [request id: <id_unknown>] warmup setting has 34359738368 bytes for input 'C', want 2147483648 at most"},
		"too much in all":   {sample(one, "C", "INT64", "134217728", zero, "D", "INT64", "134217728", zero, "IN", "INT32", "2", zero), "", "INVALID_ARG warmup sample 's' has 2147483656 bytes up to input 'IN', want 2147483648 at most"},
		"beyond all bounds": {sample(one, "IN", "INT32", "2", zero, "C", "INT64", "4294967296, 4294967296", zero), "", "INVALID_ARG [request id: <id_unknown>] byte size for tensor 'C' exceeds maximum size of 9223372036854775807"},
		"too large a batch": {sample("batch_size: 4000000000", "IN", "INT32", "2", zero), "", "INVALID_ARG warmup sample 's' has batch size 4000000000, want 65536 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, root := newWarmup(t, test.samples, files)
			b, err := onlyBatch(w)
			refusal := ""
			if err != nil {
				e := infer.AsError(err).Detailed()
				refusal = map[infer.Code]string{infer.InvalidArg: "INVALID_ARG ", infer.Internal: "INTERNAL "}[e.Code] + strings.ReplaceAll(e.Message, root, "/repository")
			}
			var inputs []string
			if b != nil {
				for _, in := range b.request().Inputs {
					inputs = append(inputs, fmt.Sprintf("%s%s=%s", in.Name, infer.ShapeString(in.Shape), in.Data))
				}
			}
			if got := strings.Join(inputs, " "); got != test.want || refusal != test.refusal {
				t.Errorf("got %q, %q; want %q, %q", got, refusal, test.want, test.refusal)
			}
		})
	}
}

// TestWarmupTextsAreBounded checks that a file of texts may not exceed the remaining size of its
// sample.
func TestWarmupTextsAreBounded(t *testing.T) {
	w, _, _ := newWarmup(t, sample("batch_size: 1", "TEXT", "STRING", "2", `input_data_file: "texts"`), map[string]string{"texts": "\x01\x00\x00\x00a\x00\x00\x00\x00"})
	directory, err := w.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	in, err := w.input("TEXT", w.Configured[0].GetInputs()["TEXT"])
	if err != nil {
		t.Fatal(err)
	}
	const tooLong = "[request id: <id_unknown>] warmup setting has more than 8 bytes for input 'TEXT' in texts, want 2147483648 at most for all inputs of the sample"
	if e := infer.AsError(w.fill(nil, directory, in, 8)); e == nil || e.Code != infer.InvalidArg || e.Message != tooLong {
		t.Errorf("of 8 bytes: got %v, want %q", e, tooLong)
	}
	if err := w.fill(nil, directory, in, 9); err != nil || len(in.tensor.Data) != 9 {
		t.Errorf("of 9 bytes: %v, %q", err, in.tensor.Data)
	}
}

// TestWarmupMakesOneSampleAtATime checks that the second sample's data is read after the first was
// executed.
func TestWarmupMakesOneSampleAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := []string{"IN", "INT32", "2", `input_data_file: "x"`}
		w, _, root := newWarmup(t, sample("batch_size: 1", in...)+sample("batch_size: 1", in...), map[string]string{"x": "12345678"})
		path := filepath.Join(root, "m", "warmup", "x")
		var got []string
		instance := &scripted{Gated: Gated{"a"}, does: func(_ int, b *backend.Batch) {
			got = append(got, string(b.Tasks[0].Request.Inputs[0].Data))
			if err := os.WriteFile(path, []byte("abcdefgh"), 0o644); err != nil {
				t.Error(err)
			}
			answer(b, nil)
			b.Done(b, backend.Report{Executed: true})
		}}
		if err := w.Run(t.Context(), instance, true); err != nil || fmt.Sprint(got) != "[12345678 abcdefgh]" {
			t.Errorf("executed %v, %v", got, err)
		}
	})
}

// TestWarmupDataIsShared checks that instances that warm up at the same time share the data.
func TestWarmupDataIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := newWarmup(t, sample("batch_size: 2", "IN", "INT32", "2", "random_data: true"), nil)
		w.Observer = unmoved{}
		var seen [3]*byte
		var all sync.WaitGroup
		for i := range seen {
			instance := &scripted{Gated: Gated{fmt.Sprint(i)}, does: func(_ int, b *backend.Batch) {
				seen[i] = &b.Tasks[1].Request.Inputs[0].Data[0]
				answer(b, nil)
				b.Done(b, backend.Report{Executed: true})
			}}
			all.Go(func() {
				if err := w.Run(t.Context(), instance, true); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if seen[0] == nil || seen[1] != seen[0] || seen[2] != seen[0] {
			t.Errorf("the data lie at %v", seen)
		}
		if len(w.held) > 0 {
			t.Errorf("%d samples are held", len(w.held))
		}
	})
}

// unmoved is an observer that does nothing.
type unmoved struct{}

func (unmoved) Pending(int)                    {}
func (unmoved) Failed(scheduler.Reason, int64) {}
func (unmoved) Executed(*scheduler.Execution)  {}

// TestRandomSamplesFitTheirType checks that random numbers differ and that random booleans are 0 or
// 1.
func TestRandomSamplesFitTheirType(t *testing.T) {
	w, _, _ := newWarmup(t, sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true", "YES", "BOOL", "64", "random_data: false", "C", "INT64", "64", "random_data: true"), nil)
	b, err := onlyBatch(w)
	if err != nil {
		t.Fatal(err)
	}
	r := b.request()
	truths := r.Input("YES").Data
	if !slices.Contains(truths, 0) || !slices.Contains(truths, 1) || slices.ContainsFunc(truths, func(b byte) bool { return b > 1 }) {
		t.Errorf("64 truth values at random are %v", truths)
	}
	if numbers := r.Input("C").Data; binary.LittleEndian.Uint64(numbers) == binary.LittleEndian.Uint64(numbers[8:]) {
		t.Errorf("two numbers at random are the same: %v", numbers[:16])
	}
}

// scripted is an instance that runs a function one second after each Execute.
type scripted struct {
	Gated
	batches [][]int64 // batch sizes of the requests
	does    func(n int, b *backend.Batch)
	left    int // number of cancelled tasks
}

func (s *scripted) Execute(b *backend.Batch) {
	n := len(s.batches)
	var sizes []int64
	for _, task := range b.Tasks {
		sizes = append(sizes, task.Request.BatchSize)
	}
	s.batches = append(s.batches, sizes)
	time.AfterFunc(time.Second, func() { s.does(n, b) })
}

func (s *scripted) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: s}
}

func (s *scripted) Cancel(*backend.Task) { s.left++ }

// answer sends the same error, or an empty response, to all tasks.
func answer(b *backend.Batch, err error) {
	for _, task := range b.Tasks {
		if err != nil {
			task.Send(infer.ErrorResponse(err))
		} else {
			task.Send(&infer.Response{Final: true})
		}
	}
}

func TestSamplesRunInOrder(t *testing.T) {
	fine := backend.Report{Executed: true}
	in := []string{"IN", "INT32", "2", "zero_data: true"}
	for name, test := range map[string]struct {
		samples   string
		iterative bool
		does      func(n int, b *backend.Batch)
		batches   string
		counted   string
		failure   string
	}{
		"each as often as it says": {
			sample("batch_size: 3 count: 2", in...) + sample("", "IN", "FP32", "9", "zero_data: true") + sample("batch_size: 1 count: 0", in...), false,
			func(_ int, b *backend.Batch) { answer(b, nil); b.Done(b, fine) }, "[[1 1 1] [1 1 1] [1]]", "[3 3 1]", "",
		},
		"answers after the end of the batch": {
			sample("batch_size: 1 count: 2", in...), false,
			func(_ int, b *backend.Batch) {
				b.Done(b, fine)
				b.Tasks[0].Send(&infer.Response{})
				time.AfterFunc(time.Second, func() { answer(b, nil) })
			}, "[[1] [1]]", "[1 1]", "",
		},
		"the first iteration fails": {
			sample("batch_size: 2 count: 2", in...), false,
			func(_ int, b *backend.Batch) { answer(b, errors.New("no")); b.Done(b, fine) }, "[[1 1]]", "[2]", "failed to run warmup sample 's': no; no; ",
		},
		"lost before it began": {
			sample("batch_size: 2", in...), false,
			func(_ int, b *backend.Batch) { b.Done(b, backend.Report{Refused: true}) }, "[[1 1]]", "[]", "failed to run warmup sample 's': Stub process 'a' is not healthy.; ",
		},
		"a second round": {
			sample("batch_size: 2", in...), true,
			func(n int, b *backend.Batch) {
				if n > 0 {
					answer(b, nil)
					b.Done(b, fine)
					return
				}
				b.Tasks[0].Send(&infer.Response{Final: true})
				b.Done(b, backend.Report{Executed: true, Rescheduled: b.Tasks[1:]})
			}, "[[1 1] [1]]", "[2 1]", "",
		},
		"a second round of a model that has none": {
			sample("batch_size: 1", in...), false,
			func(_ int, b *backend.Batch) { b.Done(b, backend.Report{Executed: true, Rescheduled: b.Tasks}) },
			"[[1]]", "[1]", "failed to run warmup sample 's': Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.; ",
		},
		"data that is not there": {
			sample("batch_size: 1", in...) + sample("batch_size: 1", "IN", "INT32", "2", `input_data_file: "x"`), false,
			func(_ int, b *backend.Batch) { answer(b, nil); b.Done(b, fine) }, "[[1]]", "[1]", "failed to open text file for read /repository/m/warmup/x: No such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, counts, root := newWarmup(t, test.samples, nil)
				w.Iterative = test.iterative
				in := &scripted{Gated: Gated{"a"}, does: test.does}
				failure := ""
				if err := w.Run(t.Context(), in, true); err != nil {
					failure = strings.ReplaceAll(infer.AsError(err).Detailed().Message, root, "/repository")
				}
				if got := fmt.Sprint(in.batches); got != test.batches {
					t.Errorf("executed are %s, want %s", got, test.batches)
				}
				if got := fmt.Sprint(counts.sizes); got != test.counted {
					t.Errorf("counted are %s, want %s", got, test.counted)
				}
				if failure != test.failure {
					t.Errorf("got %q, want %q", failure, test.failure)
				}
			})
		})
	}
}

// TestRepetitionsEndInTime checks that samples are repeated for five minutes and executed once
// after that, and that the log names the limit.
func TestRepetitionsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := []string{"IN", "INT32", "2", "zero_data: true"}
		w, counts, _ := newWarmup(t, sample("batch_size: 1 count: 100", in...)+sample("batch_size: 1 count: 1000000", in...)+sample("batch_size: 2 count: 7", in...), nil)
		var log bytes.Buffer
		w.Log = zerolog.New(&log).Level(zerolog.WarnLevel)
		instance := &scripted{Gated: Gated{"a"}, does: func(_ int, b *backend.Batch) { answer(b, nil); b.Done(b, backend.Report{Executed: true}) }}
		began := time.Now()
		if err := w.Run(t.Context(), instance, true); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < repeatAtMost || took > repeatAtMost+5*time.Second {
			t.Errorf("it took %s, want %s and one round of the last sample", took, repeatAtMost)
		}
		if n := len(counts.sizes); n < 300 || n > 304 || counts.sizes[n-1] != 2 || counts.sizes[n-2] != 1 {
			t.Errorf("%d batches were executed, want 300 of one request and one of two", n)
		}
		for _, want := range []string{
			"model 'm' instance a executed warmup sample 's' 201 of 1000000 times within the limit of 5m0s; use a smaller 'count' in model_warmup",
			"executed warmup sample 's' 1 of 7 times",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log is %s, want %s", log.String(), want)
			}
		}
	})
}

// TestManySamplesEndInTime checks that the first samples are executed however long they take, that
// later ones are skipped after five minutes, and that the log has their number.
func TestManySamplesEndInTime(t *testing.T) {
	for name, test := range map[string]struct {
		each time.Duration // length of an execution
		want int           // executions
	}{
		"quick": {time.Second, int(repeatAtMost/time.Second) + 1},
		"slow":  {time.Minute, onceAtLeast},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, counts, _ := newWarmup(t, strings.Repeat(sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true"), 400), nil)
				var log bytes.Buffer
				w.Log = zerolog.New(&log).Level(zerolog.WarnLevel)
				instance := &scripted{Gated: Gated{"a"}, does: func(_ int, b *backend.Batch) {
					time.Sleep(test.each - time.Second) // each execution takes a second more
					answer(b, nil)
					b.Done(b, backend.Report{Executed: true})
				}}
				if err := w.Run(t.Context(), instance, true); err != nil {
					t.Fatal(err)
				}
				if n := len(counts.sizes); n != test.want {
					t.Errorf("%d samples were executed, want %d", n, test.want)
				}
				want := fmt.Sprintf("model 'm' instance a executed %d of 400 warmup samples within the limit of 5m0s; use fewer samples in model_warmup", test.want)
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log is %s, want %s", log.String(), want)
				}
			})
		})
	}
}

// TestSamplesAreCharged checks that data and requests that exceed the memory limit are rejected,
// and that nothing stays charged.
func TestSamplesAreCharged(t *testing.T) {
	const large = "33554432"
	for name, test := range map[string]struct{ samples, failure string }{
		"small":          {sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true"), ""},
		"zeros":          {sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true", "C", "INT32", large, "zero_data: true"), "request needs 134217728 bytes of memory"},
		"random bytes":   {sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true", "C", "INT32", large, "random_data: true"), "request needs 134217728 bytes of memory"},
		"a file":         {sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true", "C", "INT32", large, `input_data_file: "large"`), "request needs 134217728 bytes of memory"},
		"a batch of 64K": {sample("batch_size: 65536", "IN", "INT32", "2", "zero_data: true"), "request needs 83886080 bytes of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _, root := newWarmup(t, test.samples, nil)
				if err := os.WriteFile(filepath.Join(root, "m", "warmup", "large"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(filepath.Join(root, "m", "warmup", "large"), 128<<20); err != nil {
					t.Fatal(err)
				}
				w.Memory = budget.New(budget.Config{Limit: 64 << 20})
				held := int64(0)
				instance := &scripted{Gated: Gated{"a"}, does: func(_ int, b *backend.Batch) {
					held = w.Memory.Total()
					answer(b, nil)
					b.Done(b, backend.Report{Executed: true})
				}}
				err := w.Run(t.Context(), instance, true)
				if failed := err != nil; failed != (test.failure != "") || failed && !strings.Contains(err.Error(), test.failure) {
					t.Errorf("got error %v, want %q", err, test.failure)
				}
				if test.failure == "" && held < requestBytes {
					t.Errorf("%d bytes were charged, want the request", held)
				}
				if n := w.Memory.Total(); n != 0 {
					t.Errorf("%d bytes stay charged", n)
				}
			})
		})
	}
}

// TestWarmupAgainIsBounded checks that the warm-up of a restarted instance ends after a time. It
// may depend on a model that waits for this instance.
func TestWarmupAgainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := newWarmup(t, sample("batch_size: 1", "IN", "INT32", "2", "zero_data: true"), nil)
		in := &scripted{Gated: Gated{"a"}}
		in.does = func(_ int, b *backend.Batch) { answer(b, nil); b.Done(b, backend.Report{Executed: true}) }
		if err := w.Run(t.Context(), in, true); err != nil {
			t.Fatal(err)
		}
		in.does = func(_ int, b *backend.Batch) {
			<-b.Tasks[0].Context.Done()
			answer(b, errors.New("cancelled"))
			b.Done(b, backend.Report{Executed: true})
		}
		began := time.Now()
		err := w.Run(t.Context(), in, false)
		if err == nil || time.Since(began) < againAtLeast || time.Since(began) > 2*againAtLeast || in.left != 1 {
			t.Errorf("it ended after %v with %v, %d tasks were cancelled", time.Since(began), err, in.left)
		}
	})
}
