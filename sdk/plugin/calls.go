package plugin

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// calls makes the author's calls of the server, except inferences. A call is a CALL frame, which
// the server answers with RESULT in any order. It implements engine.Metrics.
type calls struct {
	session *session

	mu    sync.Mutex
	last  uint64
	boxes map[uint64]*peer.Box // of calls that wait for a RESULT
}

func (c *calls) init(s *session) { c.session, c.boxes = s, make(map[uint64]*peer.Box) }

// box returns the box that waits for a RESULT, or nil.
func (c *calls) box(number uint64) *peer.Box {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boxes[number]
}

// result is the body of RESULT.
type result struct {
	Error     string  `msgpack:"error"`
	Code      int     `msgpack:"code"` // of the error
	Ready     bool    `msgpack:"ready"`
	Value     float64 `msgpack:"value"`
	Decoupled bool    `msgpack:"decoupled"`
	Asks      bool    `msgpack:"asks"`
}

// call sends a call and waits for its result.
func (c *calls) call(fields any) (r result, err error) {
	c.mu.Lock()
	c.last++
	number, box := c.last, peer.NewBox()
	c.boxes[number] = box
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.boxes, number)
		c.mu.Unlock()
	}()
	if err := c.session.sendMap(ipc.Call, number, fields); err != nil {
		return r, infer.Errorf(infer.Internal, "%s", err.Error())
	}
	m, err := c.session.peer.Receive(box, &c.session.answerSpin, 0)
	if err == nil {
		err = decode(m, &r)
	}
	if err != nil {
		return r, infer.Errorf(infer.Internal, "the server's answer is not understood: %v", err)
	}
	if r.Error != "" {
		code := infer.Code(r.Code)
		if !code.Valid() {
			code = infer.Internal
		}
		return r, infer.Errorf(code, "%s", r.Error)
	}
	return r, nil
}

// NewFamily implements engine.Metrics.
func (c *calls) NewFamily(number uint64, name, description string, kind int) error {
	_, err := c.call(map[string]any{"operation": "new_family", "family": number, "name": name, "description": description, "kind": kind})
	return err
}

// NewMetric implements engine.Metrics.
func (c *calls) NewMetric(family, number uint64, labels [][2]string, buckets []float64) error {
	_, err := c.call(map[string]any{"operation": "new_metric", "family": family, "metric": number, "labels": labels, "buckets": buckets})
	return err
}

// DropFamily implements engine.Metrics.
func (c *calls) DropFamily(number uint64) error {
	return c.session.sendMap(ipc.Call, 0, map[string]any{"operation": "drop_family", "family": number})
}

// Apply implements engine.Metrics.
func (c *calls) Apply(number uint64, operation uint32, value float64) error {
	return c.session.peer.Fill(ipc.Metric, number, 16, func(body []byte) { ipc.PutMetric(body, operation, math.Float64bits(value)) })
}

// memory reports how many bytes the model uses. An error is that of the connection.
func (c *calls) memory(bytes int64) {
	_ = c.session.sendMap(ipc.Call, 0, &memoryCall{"memory", bytes})
}

// memoryCall is the body of a call that plugins alone make.
type memoryCall struct {
	Operation string `msgpack:"operation"`
	Bytes     int64  `msgpack:"bytes"`
}

// response reports a sent response. An error is that of the connection.
func (c *calls) response(r backend.ResponseReport) {
	_ = c.session.sendMap(ipc.Call, 0, &responseCall{"response", r.Index, r.Start, r.OutputStart, r.End, uint8(r.Outcome)})
}

// activity reports an author's activity for a request. An error is that of the connection.
func (c *calls) activity(r *infer.Request, name string, at int64) {
	if text := traceOf(r); text != "" {
		_ = c.session.sendMap(ipc.Call, 0, &activityCall{"activity", text, name, at})
	}
}

// activityCall is the body of a call that plugins alone make.
type activityCall struct {
	Operation string `msgpack:"operation"`
	Trace     string `msgpack:"trace"`
	Name      string `msgpack:"name"`
	At        int64  `msgpack:"at"`
}

// responseCall is the body of a call that plugins alone make.
type responseCall struct {
	Operation   string `msgpack:"operation"`
	Index       int    `msgpack:"index"`
	Start       int64  `msgpack:"start"`
	OutputStart int64  `msgpack:"output_start"`
	End         int64  `msgpack:"end"`
	Outcome     uint8  `msgpack:"outcome"`
}

// Value implements engine.Metrics.
func (c *calls) Value(number uint64) (value float64, known bool, err error) {
	r, err := c.call(map[string]any{"operation": "value", "metric": number})
	return r.Value, err == nil, err
}

// decoupledCall is the body of the call that plugins alone make.
type decoupledCall struct {
	Operation string `msgpack:"operation"`
	Model     string `msgpack:"model"`
	Version   string `msgpack:"version"`
}

// host implements engine.RemoteHost.
type host struct{ session *session }

// Load implements backend.Host.
func (h *host) Load(_ context.Context, model, config string, files map[string][]byte) error {
	named := make(map[string][]byte, len(files))
	for path, content := range files {
		named["file:"+strings.TrimPrefix(path, "file:")] = content
	}
	_, err := h.session.calls.call(map[string]any{"operation": "load", "model": model, "config": config, "files": named})
	return err
}

// Unload implements backend.Host.
func (h *host) Unload(_ context.Context, model string, dependents bool) error {
	_, err := h.session.calls.call(map[string]any{"operation": "unload", "model": model, "dependents": dependents})
	return err
}

// ModelReady implements backend.Host.
func (h *host) ModelReady(_ context.Context, model string, version int64) (bool, error) {
	r, err := h.session.calls.call(map[string]any{"operation": "ready", "model": model, "version": versionText(version)})
	return r.Ready, err
}

// Target implements backend.Host. The server resolves the model of each request itself.
func (h *host) Target(model string, version int64) (backend.Target, error) {
	r, err := h.session.calls.call(&decoupledCall{"decoupled", model, versionText(version)})
	if err != nil {
		return nil, err
	}
	return &target{host: h, decoupled: r.Decoupled}, nil
}

// target implements backend.Target for a model in the server.
type target struct {
	host      *host
	decoupled bool
}

// Submit implements backend.Target.
func (t *target) Submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	return t.host.SubmitRemote(ctx, r, true, send)
}

// Release implements backend.Target.
func (t *target) Release() {}

// Decoupled implements backend.Target.
func (t *target) Decoupled() bool { return t.decoupled }

// AsksReady implements backend.Target: the server asks.
func (t *target) AsksReady() bool { return false }

// Ready implements backend.Target.
func (t *target) Ready(context.Context) error { return nil }

// TakesDevices implements backend.Target.
func (t *target) TakesDevices() bool { return false }

// versionText returns a version in the form of CALL.
func versionText(version int64) string {
	if version == infer.LatestVersion {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// SubmitRemote implements engine.RemoteHost.
func (h *host) SubmitRemote(ctx context.Context, r *infer.Request, stream bool, send infer.Sender) error {
	if !h.session.running.Load() {
		return infer.Errorf(infer.Unavailable, "a backend can call model '%s' only between its first Execute and the end of its instance", r.Model)
	}
	return h.session.inferences.begin(ctx, h.session, r, stream, send)
}

// Await implements engine.RemoteHost.
func (h *host) Await(done <-chan struct{}) {
	s := h.session
	enough := func() bool { return len(done) > 0 }
	s.peer.Linger(&s.answerSpin, enough)
	if !enough() {
		s.standby.needAnswers()
	}
}
