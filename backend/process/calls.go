package process

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"
)

// Limits of the host calls that one process has in flight: those that take their time,
// and the bytes of what they brought.
const (
	maxCalls     = 256
	maxCallBytes = 2 * ipc.MaxSpilledBody
	maxCallFiles = 4096 // of one model to load
)

// callSession is what host calls ask of the life of the process that makes them. Any
// goroutine calls it.
type callSession interface {
	// sendBody sends a frame, through a block of the pool if its body is long.
	sendBody(kind ipc.Kind, id uint64, body []byte) error
	// fail ends the life because of err. It does not wait.
	fail(err error)
}

// hostCalls are what a process asks of its server beside BLS requests.
type hostCalls struct {
	session callSession
	host    backend.Host
	log     zerolog.Logger
	custom  *metrics.Holder // guarded by the channel's receive lock

	// ctx ends with the life: calls that wait are given up.
	ctx     context.Context
	cancel  context.CancelFunc
	waiting sync.WaitGroup // added to under the receive lock
	// count and bytes are of the calls that a goroutine acts on. The reader of the ring
	// adds to them, and those goroutines take away.
	count atomic.Int32
	bytes atomic.Int64
}

func newHostCalls(session callSession, host backend.Host, custom *metrics.Holder, log zerolog.Logger) *hostCalls {
	c := &hostCalls{session: session, host: host, custom: custom, log: log}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// end gives up what is in flight and waits until nothing is. The custom metrics
// stay if keep is set. No frame of the process may be handled any more.
func (c *hostCalls) end(keep bool) {
	c.cancel()
	c.custom.End(keep)
	c.waiting.Wait()
}

// callBody is the body of CALL: the operation, and the fields of all operations.
type callBody struct {
	Operation string `msgpack:"operation"`

	Model      string    `msgpack:"model"`
	Config     string    `msgpack:"config"`
	Files      callFiles `msgpack:"files"`
	Dependents bool      `msgpack:"dependents"`
	Version    string    `msgpack:"version"`

	Family      uint64      `msgpack:"family"`
	Name        string      `msgpack:"name"`
	Description string      `msgpack:"description"`
	Kind        int         `msgpack:"kind"`
	Metric      uint64      `msgpack:"metric"`
	Labels      [][2]string `msgpack:"labels"`
	Buckets     []float64   `msgpack:"buckets"`
}

// callFiles are the files of a model by their names; none if there are more than
// one call may have.
type callFiles struct {
	content map[string][]byte
	tooMany bool
}

// DecodeMsgpack implements msgpack.CustomDecoder: files are counted before
// anything is allocated for them.
func (f *callFiles) DecodeMsgpack(d *msgpack.Decoder) error {
	n, err := d.DecodeMapLen()
	if err != nil || n <= 0 {
		return err
	}
	if f.tooMany = n > maxCallFiles; f.tooMany {
		for range 2 * n {
			if err := d.Skip(); err != nil {
				return err
			}
		}
		return nil
	}
	f.content = make(map[string][]byte, n)
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		if f.content[name], err = d.DecodeBytes(); err != nil {
			return err
		}
	}
	return nil
}

// resultBody is the body of RESULT.
type resultBody struct {
	Error string  `msgpack:"error"`
	Ready bool    `msgpack:"ready"`
	Value float64 `msgpack:"value"`
}

// receive acts on a CALL. What takes its time is done by a goroutine; everything
// about metrics is done at once, so that it keeps its order.
func (c *hostCalls) receive(f ipc.Frame) error {
	var body callBody
	if err := frames.DecodeMap(f, &body); err != nil {
		return err
	}
	if len(f.Body) > frames.MaxMap && body.Operation != "load" {
		return broke("frame", "body of CALL %q has %d bytes, want at most %d", body.Operation, len(f.Body), frames.MaxMap)
	}
	if (f.ID == 0) != (body.Operation == "drop_family") {
		return broke("call", "CALL %q has number %d", body.Operation, f.ID)
	}
	var (
		err    error
		result resultBody
	)
	switch body.Operation {
	case "load", "unload", "ready":
		return c.control(f.ID, &body, int64(len(f.Body)))
	case "new_family":
		err = c.custom.NewFamily(body.Family, body.Name, body.Description, metrics.Kind(body.Kind))
	case "new_metric":
		err = c.custom.NewMetric(body.Family, body.Metric, body.Labels, body.Buckets)
	case "drop_family":
		return misused(c.custom.DropFamily(body.Family))
	case "value":
		known := false
		if result.Value, known, err = c.custom.Value(body.Metric); err == nil && !known {
			err = errDropped
		}
	default:
		err = infer.Errorf(infer.Unsupported, "a call of an unknown kind")
	}
	if err := misused(err); err != nil {
		return err
	}
	if err != nil {
		result.Error = err.Error()
	}
	return c.result(f.ID, result)
}

// errDropped is for a thread that asks for a metric while another one drops it.
var errDropped = errors.New("Invalid metric operation as the corresponding 'MetricFamily' has been deleted. " +
	"The 'MetricFamily' object should be deleted AFTER its corresponding 'Metric' objects have been deleted.")

// misused turns what no stub asks for into a protocol error; other errors are
// for the model.
func misused(err error) error {
	if errors.Is(err, metrics.ErrMisuse) {
		return broke("metric", "%v", err)
	}
	return nil
}

// measure acts on a METRIC.
func (c *hostCalls) measure(f ipc.Frame) error {
	body, err := ipc.ParseMetric(f.Body)
	if err != nil {
		return err
	}
	return misused(c.custom.Apply(f.ID, metrics.Operation(body.Operation), body.Value))
}

// control has a call about models done by a goroutine of its own, as far as
// there may be another one.
func (c *hostCalls) control(number uint64, body *callBody, bytes int64) error {
	done := func() {
		c.count.Add(-1)
		c.bytes.Add(-bytes)
	}
	if n, b := c.count.Add(1), c.bytes.Add(bytes); n > maxCalls || b > maxCallBytes {
		done()
		return c.result(number, resultBody{Error: infer.Errorf(infer.Unavailable,
			"%d calls of %d bytes are under way, at most %d of %d can be", n-1, b-bytes, maxCalls, maxCallBytes).Message})
	}
	c.waiting.Go(boundary.Guard(c.log, boundary.Life, func() {
		defer done()
		var result resultBody
		err := boundary.Run(c.log, boundary.Models, func() (err error) {
			result, err = c.act(c.ctx, body)
			return err
		})
		if err != nil {
			result.Error = infer.AsError(err).Message
		}
		if err := c.result(number, result); err != nil {
			c.session.fail(err)
		}
	}, c.session.fail))
	return nil
}

// act asks the packages above.
func (c *hostCalls) act(ctx context.Context, body *callBody) (result resultBody, err error) {
	switch body.Operation {
	case "load":
		if body.Files.tooMany {
			return result, infer.Errorf(infer.InvalidArg, "failed to load '%s', it has more than %d files", body.Model, maxCallFiles)
		}
		var files map[string][]byte
		for name, content := range body.Files.content {
			if files == nil {
				files = make(map[string][]byte, len(body.Files.content))
			}
			path, ok := strings.CutPrefix(name, "file:")
			if !ok {
				c.log.Error().Msgf("load of model '%s': Unrecognized load parameter '%s', want 'file:' and a path", body.Model, output.Cut(name))
				return result, infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", body.Model)
			}
			files[path] = content
		}
		err = c.host.Load(ctx, body.Model, body.Config, files)
	case "unload":
		err = c.host.Unload(ctx, body.Model, body.Dependents)
	case "ready":
		var version int64
		if version, err = parseVersion(body.Version); err == nil {
			result.Ready, err = c.host.ModelReady(ctx, body.Model, version)
		}
	}
	return result, err
}

// maxResultText bounds the text of an error, in bytes.
const maxResultText = 256 << 10

// result sends RESULT. An error ends the life; a life that has ended is none.
func (c *hostCalls) result(number uint64, body resultBody) error {
	body.Error = strings.ToValidUTF8(output.CutAt(body.Error, maxResultText), "\uFFFD")
	encoded, err := msgpack.Marshal(&body)
	if err != nil {
		return err
	}
	err = c.session.sendBody(ipc.Result, number, encoded)
	if len(encoded) > ipc.MaxInlineBody && frames.Refusal(err) != nil {
		// There is no memory for a long text now.
		body.Error = output.Cut(body.Error)
		if encoded, err = msgpack.Marshal(&body); err == nil {
			err = c.session.sendBody(ipc.Result, number, encoded)
		}
	}
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}

// parseVersion reads the version of a model as Triton does; none is the latest.
func parseVersion(text string) (int64, error) {
	if text == "" {
		return infer.LatestVersion, nil
	}
	version, err := Stol(text)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArg,
			"failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", text)
	}
	if version < 0 {
		return 0, infer.Errorf(infer.InvalidArg, "failed to get model version from specified version string '%s', version should be an integral value > 0", text)
	}
	return version, nil
}
