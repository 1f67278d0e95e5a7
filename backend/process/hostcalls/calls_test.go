package hostcalls_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/metrics"
)

func TestParseVersionTakesLeadingDigits(t *testing.T) {
	for text, want := range map[string]int64{"": infer.LatestVersion, "1": 1, "0": 0, "1abc": 1, " 7": 7, "+3": 3, "x": -2, "-1": -2, "1e99": 1, "99999999999999999999": -2} {
		got, err := hostcalls.ParseVersion(text)
		if err != nil {
			got = -2
		}
		if got != want {
			t.Errorf("%q: got %d, error %v, want %d", text, got, err, want)
		}
	}
}

// newCalls returns the host calls of a life of model m.
func newCalls(t testing.TB, life processtest.Life, registry *metrics.Registry) *hostcalls.Calls {
	return hostcalls.New(hostcalls.Config{
		Host: &processtest.Host{}, Metrics: registry.Custom("m"), Encoder: life.Encoder, Log: zerolog.Nop(),
		Fail: func(err error) { t.Errorf("the life is ended: %v", err) },
	})
}

func handle(c *hostcalls.Calls, f ipc.Frame) error {
	if f.Kind == ipc.Metric {
		return c.Measure(f)
	}
	return c.Receive(f)
}

// callOf returns a CALL frame.
func callOf(t testing.TB, id uint64, fields map[string]any) ipc.Frame {
	t.Helper()
	body, err := msgpack.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return ipc.Frame{Kind: ipc.Call, ID: id, Body: body}
}

func metricOf(id uint64, operation uint32, value float64) ipc.Frame {
	le := binary.LittleEndian
	body := le.AppendUint32(nil, operation)
	body = le.AppendUint32(body, 0)
	return ipc.Frame{Kind: ipc.Metric, ID: id, Body: le.AppendUint64(body, math.Float64bits(value))}
}

// TestMalformedHostCallsEndTheLife sends calls that no stub sends, and expects a protocol error of
// the right rule for each.
func TestMalformedHostCallsEndTheLife(t *testing.T) {
	family := map[string]any{"operation": "new_family", "family": 1, "name": "f", "description": "", "kind": 0}
	metric := map[string]any{"operation": "new_metric", "family": 1, "metric": 1, "labels": [][2]string{}, "buckets": nil}
	long := map[string]any{"operation": "ready", "model": strings.Repeat("x", frames.MaxMap), "version": ""}
	for name, test := range map[string]struct {
		evil ipc.Frame
		rule string
	}{
		"no map":                 {ipc.Frame{Kind: ipc.Call, ID: 1, Body: []byte{0x90}}, "msgpack"},
		"wrong type":             {callOf(t, 1, map[string]any{"operation": "load", "model": 5}), "msgpack"},
		"files of strings":       {callOf(t, 1, map[string]any{"operation": "load", "model": "m", "files": []string{"a"}}), "msgpack"},
		"labels of three":        {callOf(t, 1, map[string]any{"operation": "new_metric", "labels": [][]string{{"a", "b", "c"}}}), "msgpack"},
		"long":                   {callOf(t, 1, long), "frame"},
		"without number":         {callOf(t, 0, map[string]any{"operation": "load", "model": "m"}), "call"},
		"drop with number":       {callOf(t, 5, map[string]any{"operation": "drop_family", "family": 1}), "call"},
		"memory with number":     {callOf(t, 5, map[string]any{"operation": "memory", "bytes": 1}), "call"},
		"imported with number":   {callOf(t, 5, map[string]any{"operation": "imported", "paths": []string{"/a.py"}}), "call"},
		"imported numbers":       {callOf(t, 0, map[string]any{"operation": "imported", "paths": []int{1}}), "msgpack"},
		"negative memory":        {callOf(t, 0, map[string]any{"operation": "memory", "bytes": -1}), "call"},
		"drop of nothing":        {callOf(t, 0, map[string]any{"operation": "drop_family", "family": 9}), "metric"},
		"family again":           {callOf(t, 5, family), "metric"},
		"metric again":           {callOf(t, 5, metric), "metric"},
		"unknown kind":           {callOf(t, 5, map[string]any{"operation": "new_family", "family": 2, "name": "g", "kind": 7}), "metric"},
		"value of nothing":       {callOf(t, 5, map[string]any{"operation": "value", "metric": 9}), "metric"},
		"METRIC of nothing":      {metricOf(9, 1, 1), "metric"},
		"negative increment":     {metricOf(1, 1, -1), "metric"},
		"set of a counter":       {metricOf(1, 2, 1), "metric"},
		"observation of counter": {metricOf(1, 3, 1), "metric"},
		"operation 4":            {metricOf(1, 4, 1), "metric"},
		"short METRIC":           {ipc.Frame{Kind: ipc.Metric, ID: 1, Body: []byte{1, 0, 0, 0}}, "frame"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCalls(t, processtest.New(t, processtest.Backings["sealed"]).NewLife(), metrics.New(metrics.Config{}))
			defer c.Close(false)
			for _, good := range []ipc.Frame{callOf(t, 1, family), callOf(t, 2, metric), metricOf(1, 1, 2), metricOf(1, 1, math.NaN())} {
				if err := handle(c, good); err != nil {
					t.Fatal(err)
				}
			}
			err := handle(c, test.evil)
			var broken *ipc.ProtocolError
			if !errors.As(err, &broken) || broken.Rule != test.rule {
				t.Errorf("got error %v, want one of rule %q", err, test.rule)
			}
		})
	}
	// An unknown operation, perhaps of a later stub, is refused without ending the life.
	c := newCalls(t, processtest.New(t, processtest.Backings["sealed"]).NewLife(), metrics.New(metrics.Config{}))
	defer c.Close(false)
	if err := handle(c, callOf(t, 1, map[string]any{"operation": "fly"})); err != nil {
		t.Errorf("unknown operation: got error %v", err)
	}
}

// loadingHost calls load for each load.
type loadingHost struct {
	processtest.Host
	load func()
}

func (h *loadingHost) Load(context.Context, string, string, map[string][]byte) error {
	h.load()
	return nil
}

// TestDecodedCallsAreCharged checks that the lists and files of a call are charged until it has
// been executed. Without room, the call is not executed, and the life continues.
func TestDecodedCallsAreCharged(t *testing.T) {
	const paths, file = 100_000, 1 << 20
	for _, room := range []bool{true, false} {
		limit := int64(1 << 20)
		if room {
			limit = 1 << 30
		}
		account := budget.New(budget.Config{Limit: limit})
		used := func() int64 { return account.Used(budget.Frames) }
		called := map[string]int64{} // the charged bytes, by operation
		life := processtest.New(t, processtest.Backings["sealed"]).NewLife()
		c := hostcalls.New(hostcalls.Config{
			Host:     &loadingHost{load: func() { called["load"] = used() }},
			Imported: func([]string) int { called["imported"] = used(); return 0 },
			Metrics:  metrics.New(metrics.Config{}).Custom("m"), Encoder: life.Encoder, Heap: &frames.Heap{Account: account}, Log: zerolog.Nop(),
		})
		for _, f := range []ipc.Frame{
			callOf(t, 0, map[string]any{"operation": "imported", "paths": make([]string, paths)}),
			callOf(t, 1, map[string]any{"operation": "load", "model": "m", "files": map[string][]byte{"file:1/x": make([]byte, file)}}),
		} {
			if err := handle(c, f); err != nil {
				t.Errorf("room %v: got error %v, want none", room, err)
			}
		}
		c.Close(false) // waits for the load
		if len(called) > 0 != room || room && (called["imported"] < 16*paths || called["load"] < file) {
			t.Errorf("room %v: got calls with %v bytes charged", room, called)
		}
		if n := used(); n != 0 {
			t.Errorf("room %v: %d bytes are charged in the end, want none", room, n)
		}
		life.Loans.Close()
	}
}

// FuzzCalls handles arbitrary sequences of calls and metric changes. Memory is bounded, and nothing
// is left when the life ends.
func FuzzCalls(f *testing.F) {
	le := binary.LittleEndian
	var all []byte
	for _, name := range []string{
		"call_new_family", "call_new_metric", "metric", "call_value", "call_load", "call_unload", "call_ready", "call_imported", "call_drop_family", "metric",
	} {
		frame := ipctest.Frame(f, name)
		one := append([]byte{frame[4], frame[16]}, le.AppendUint16(nil, uint16(len(frame)-ipc.HeaderSize))...)
		one = append(one, frame[ipc.HeaderSize:]...)
		all = append(all, one...)
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		life := processtest.New(t, processtest.Backings["sealed"]).NewLife()
		registry := metrics.New(metrics.Config{})
		c := newCalls(t, life, registry)
		n := testkit.Allocated(func() {
			for rest := frames; len(rest) >= 4; {
				size := min(int(le.Uint16(rest[2:])), len(rest)-4)
				frame := ipc.Frame{Kind: ipc.Call, ID: uint64(rest[1]), Body: rest[4 : 4+size]}
				if rest[0] == byte(ipc.Metric) {
					frame.Kind = ipc.Metric
				}
				rest = rest[4+size:]
				if err := handle(c, frame); err != nil {
					if processtest.RuleOf(err) == "" {
						t.Errorf("got error %v, want a protocol error", err)
					}
					return
				}
			}
		})
		if limit := 64*uint64(len(frames)) + 1<<20; n > limit {
			t.Errorf("%d bytes were allocated for %d of frames, want at most %d", n, len(frames), limit)
		}
		w := httptest.NewRecorder()
		registry.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 200 {
			t.Errorf("metrics: status %d", w.Code)
		}
		before := len(w.Body.String())
		c.Close(false)
		w = httptest.NewRecorder()
		registry.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if strings.Contains(strings.ReplaceAll(w.Body.String(), "nv_", ""), "# HELP f") || w.Body.Len() > before {
			t.Errorf("series are left:\n%s", w.Body)
		}
		life.Loans.Close()
	})
}
