package hostcalls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/panics"
)

// Limits limit the host calls that one process has in flight and the size of their bodies. Calls
// that are answered at once do not count. 0 stands for the default of each.
type Limits struct {
	Most  int
	Bytes int64 // one body has at most ipc.MaxSpilledBody
	Files int   // of one model to load
}

// Bounds lists the limits with their defaults and bounds.
func (l *Limits) Bounds() bounds.Table {
	return bounds.Table{
		bounds.Of("Most", &l.Most, 256, 1, math.MaxInt32),
		bounds.Of("Bytes", &l.Bytes, 2*ipc.MaxSpilledBody, 1, math.MaxInt64/2),
		bounds.Of("Files", &l.Files, defaultFiles, 1, math.MaxInt32),
	}
}

const defaultFiles = 4096

// Config connects the calls to the server and to the process.
type Config struct {
	Host    backend.Host
	Metrics *metrics.Holder // the process's metrics; used with the receive lock held
	Encoder *frames.Encoder // of frames to the process
	Heap    *frames.Heap    // charges for calls that wait; may be nil
	// Responses receives the process's reports about single responses; nil ignores them.
	Responses func(backend.ResponseReport)
	// Traced returns the request with a trace text, or nil. A nil Traced knows none.
	Traced func(text []byte) *infer.Request
	// Imported receives the files that the process has imported, as in backend.Env; nil watches
	// none.
	Imported func(paths []string) (refused int)
	// Fail ends the life of the process. It does not wait.
	Fail   func(error)
	Limits Limits
	Log    zerolog.Logger
}

// Calls are the host calls of one process.
type Calls struct {
	Config

	// ctx ends with the life and cancels waiting calls.
	ctx     context.Context
	cancel  context.CancelFunc
	waiting sync.WaitGroup // added to under the receive lock
	// count and bytes count the calls that have a goroutine. The reader of the ring adds to them,
	// and those goroutines subtract.
	count atomic.Int32
	bytes atomic.Int64
	// memory is the memory of the model by its own report, in bytes.
	memory atomic.Int64
}

// Memory returns the memory of the model by its own report, in bytes.
func (c *Calls) Memory() int64 { return c.memory.Load() }

// New creates the calls of a life; Close ends them.
func New(config Config) *Calls {
	c := &Calls{Config: config}
	c.Limits.Bounds().SetDefaults()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close cancels the calls in flight and waits for them. With keep, the metrics of the process stay
// in the server's metrics. No frame of the process may be handled any more.
func (c *Calls) Close(keep bool) {
	c.cancel()
	c.Metrics.End(keep)
	c.waiting.Wait()
}

// Receive handles CALL. A goroutine executes a call that may wait; calls about metrics are executed
// at once, so that they keep their order. The caller holds the receive lock. An error ends the
// life.
func (c *Calls) Receive(f ipc.Frame) error {
	body := callBody{Files: callFiles{most: c.Limits.Files}}
	charged, err := frames.DecodeMap(c.Heap, f, &body)
	defer func() { c.Heap.Give(charged) }()
	if refusal := frames.Refusal(err); refusal != nil {
		return c.refuse(f.ID, refusal)
	}
	if err != nil {
		return err
	}
	if len(f.Body) > frames.MaxMap && body.Operation != "load" {
		return ipc.Broken("frame", "body of CALL %q has %d bytes, want at most %d", body.Operation, len(f.Body), frames.MaxMap)
	}
	if (f.ID == 0) != slices.Contains(unanswered, body.Operation) {
		return ipc.Broken("call", "CALL %q has number %d", body.Operation, f.ID)
	}
	var result resultBody
	switch body.Operation {
	case "load", "unload", "ready", "decoupled":
		n := charged
		charged = 0 // control gives it back
		return c.control(f.ID, &body, int64(len(f.Body)), n)
	case "new_family":
		err = c.Metrics.NewFamily(body.Family, body.Name, body.Description, body.Kind)
	case "new_metric":
		err = c.Metrics.NewMetric(body.Family, body.Metric, body.Labels, body.Buckets)
	case "memory":
		if body.Bytes < 0 {
			return ipc.Broken("call", "CALL \"memory\" says %d bytes", body.Bytes)
		}
		c.memory.Store(body.Bytes)
		return nil
	case "response":
		r := backend.ResponseReport{Index: body.Index, Start: body.Start, OutputStart: body.OutputStart, End: body.End, Outcome: backend.ResponseOutcome(body.Outcome)}
		if r.Outcome > backend.ResponseCancelled || r.Index < 0 || r.Start > r.End || r.OutputStart > r.End || r.OutputStart != 0 && r.Start > r.OutputStart {
			return ipc.Broken("call", "CALL \"response\" says %+v", r)
		}
		if c.Responses != nil {
			c.Responses(r)
		}
		return nil
	case "activity":
		if !trace.ActivityName(body.Name) {
			return ipc.Broken("call", "CALL \"activity\" has a name of %d bytes, want 1 to 256 of UTF-8", len(body.Name))
		}
		if c.Traced != nil {
			if r := c.Traced([]byte(body.Trace)); r != nil { // bound: frames.MaxMap
				r.Trace.Activity(body.Name, body.At)
			}
		}
		return nil
	case "imported":
		if c.Imported != nil {
			if refused := c.Imported(body.Paths); refused > 0 {
				c.Log.Debug().Msgf("%d imported files are not watched", refused)
			}
		}
		return nil
	case "drop_family":
		return misused(c.Metrics.DropFamily(body.Family))
	case "value":
		known := false
		if result.Value, known, err = c.Metrics.Value(body.Metric); err == nil && !known {
			err = errDropped
		}
	default:
		err = infer.Errorf(infer.Unsupported, "a call of an unknown kind")
	}
	if err := misused(err); err != nil {
		return err
	}
	if err != nil {
		result.Error, result.Code = err.Error(), int(infer.AsError(err).Code)
	}
	return c.result(f.ID, result)
}

// unanswered are the operations without a RESULT.
var unanswered = []string{"drop_family", "memory", "response", "imported", "activity"}

// errDropped is the error for a thread that uses a metric while another thread drops it.
var errDropped = errors.New("Invalid metric operation as the corresponding 'MetricFamily' has been deleted. " +
	"The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted.")

// misused turns an operation that a correct stub never requests into a protocol error; other errors
// are for the model.
func misused(err error) error {
	if errors.Is(err, metrics.ErrMisuse) {
		return ipc.Broken("metric", "%v", err)
	}
	return nil
}

// Measure handles METRIC. The caller holds the receive lock. An error ends the life.
func (c *Calls) Measure(f ipc.Frame) error {
	body, err := ipc.ParseMetric(f.Body)
	if err != nil {
		return err
	}
	return misused(c.Metrics.Apply(f.ID, body.Operation, body.Value))
}

// refuse reports an error to the process, unless it wants no RESULT.
func (c *Calls) refuse(number uint64, err *infer.Error) error {
	if number == 0 {
		return nil
	}
	return c.result(number, resultBody{Error: err.Message, Code: int(err.Code)})
}

// control executes a call about models in a goroutine, within the limits. charged bytes of its body
// are charged already; it gives them back.
func (c *Calls) control(number uint64, body *callBody, bytes, charged int64) error {
	done := func() {
		c.Heap.Give(charged)
		c.count.Add(-1)
		c.bytes.Add(-bytes)
	}
	if n, b := c.count.Add(1), c.bytes.Add(bytes); int(n) > c.Limits.Most || b > c.Limits.Bytes {
		done()
		text := fmt.Sprintf("%d calls of %d bytes are under way, at most %d of %d are allowed", n-1, b-bytes, c.Limits.Most, c.Limits.Bytes)
		return c.result(number, resultBody{Error: text, Code: int(infer.Unavailable)})
	}
	if charged == 0 { // small bodies count too if they wait
		if err := c.Heap.Take(bytes); err != nil {
			done()
			return c.refuse(number, infer.AsError(err))
		}
		charged = bytes
	}
	c.waiting.Go(panics.Guard(c.Log, panics.Life, func() {
		defer done()
		var result resultBody
		err := panics.Run(c.Log, panics.Models, func() (err error) {
			result, err = c.act(c.ctx, body)
			return err
		})
		if err != nil {
			failure := infer.AsError(err)
			result.Error, result.Code = failure.Message, int(failure.Code)
		}
		if err := c.result(number, result); err != nil {
			c.Fail(err)
		}
	}, c.Fail))
	return nil
}

// act calls the Host.
func (c *Calls) act(ctx context.Context, body *callBody) (result resultBody, err error) {
	switch body.Operation {
	case "load":
		if body.Files.tooMany {
			return result, infer.Errorf(infer.InvalidArg, "failed to load '%s', it has more than %d files", body.Model, c.Limits.Files)
		}
		var files map[string][]byte
		for name, content := range body.Files.content {
			if files == nil {
				files = make(map[string][]byte, len(body.Files.content)) // bound: Limits.Files
			}
			path, ok := strings.CutPrefix(name, "file:")
			if !ok {
				c.Log.Error().Msgf("load of model '%s': Unrecognized load parameter '%s', want 'file:' and a path", body.Model, output.Cut(name))
				return result, infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", body.Model)
			}
			files[path] = content // bound: Limits.Files
		}
		err = c.Host.Load(ctx, body.Model, body.Config, files)
	case "unload":
		err = c.Host.Unload(ctx, body.Model, body.Dependents)
	case "ready":
		var version int64
		if version, err = parseVersion(body.Version); err == nil {
			result.Ready, err = c.Host.ModelReady(ctx, body.Model, version)
		}
	case "decoupled":
		var version int64
		if version, err = parseVersion(body.Version); err == nil {
			result.Decoupled, result.Asks, err = c.decoupled(body.Model, version)
		}
	}
	return result, err
}

// decoupled reports whether a version is decoupled and whether its readiness has to be asked for.
func (c *Calls) decoupled(model string, version int64) (decoupled, asks bool, err error) {
	target, err := c.Host.Target(model, version)
	if err != nil {
		return false, false, err
	}
	defer target.Release()
	return target.Decoupled(), target.AsksReady(), nil
}

// maxResultText limits the text of an error, in bytes.
const maxResultText = 256 << 10

// result sends RESULT. An error ends the life; it returns nil if the life has already ended.
//
// bound: maxResultText
func (c *Calls) result(number uint64, body resultBody) error {
	body.Error = strings.ToValidUTF8(output.CutAt(body.Error, maxResultText), "\uFFFD")
	encoded, err := msgpack.Marshal(&body)
	if err != nil {
		return err
	}
	err = c.Encoder.Send(ipc.Result, number, encoded)
	if len(encoded) > ipc.MaxInlineBody && frames.Refusal(err) != nil {
		// There is no memory for a long text at the moment.
		body.Error = output.Cut(body.Error)
		if encoded, err = msgpack.Marshal(&body); err == nil {
			err = c.Encoder.Send(ipc.Result, number, encoded)
		}
	}
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}
