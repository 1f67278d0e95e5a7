package process

import (
	"bytes"
	"math"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

const (
	good    = ipc.FlagPresent | ipc.FlagFinal
	failing = good | ipc.FlagError
)

// TestOutputsOfRefusedResponses checks that every output is returned to the stub, even if the
// client does not get its response, and that invalid outputs are rejected.
func TestOutputsOfRefusedResponses(t *testing.T) {
	large := processtest.InArena(1, 0, 8192)
	small := processtest.InArena(2, 8192, 100)
	strange := processtest.InArena(0, 0, 8192) // an input's name
	strings2 := processtest.InArena(4, 0, 12)
	strings2.Type, strings2.Shape = uint8(infer.Bytes), []int64{2}
	strings3 := strings2
	strings3.Shape = []int64{3}
	elsewhere := written(65_536)
	elsewhere.Offset++
	for name, test := range map[string]struct {
		response response
		code     infer.Code
		want     string // the error's text; "" for success
		rule     string // the broken rule, or ""
	}{
		"good":               {response{flags: good, outputs: []ipc.Descriptor{large, small, strings2}, parameters: `{"a":9223372036854775807}`}, 0, "", ""},
		"no outputs":         {response{flags: good}, 0, "", ""},
		"huge integer":       {response{flags: good, outputs: []ipc.Descriptor{large, small}, parameters: `{"a":9223372036854775808}`}, infer.Internal, "Unsupported value type on parameters", ""},
		"list":               {response{flags: good, outputs: []ipc.Descriptor{large}, parameters: `{"a":[]}`}, infer.Internal, "Unsupported value type on parameters", ""},
		"no JSON":            {response{flags: good, outputs: []ipc.Descriptor{large}, parameters: `[`}, infer.Internal, "parameters of the response are not a JSON object", ""},
		"input's name":       {response{flags: good, outputs: []ipc.Descriptor{large, strange, small}}, infer.InvalidArg, "unexpected inference output 'IN0' for model 'm'", ""},
		"error with outputs": {response{flags: failing, code: uint16(infer.NotFound), text: "nöt found", outputs: []ipc.Descriptor{large, strange}}, infer.NotFound, "nöt found", ""},
		"error":              {response{flags: failing, code: uint16(infer.Internal), parameters: "[", text: "x"}, infer.Internal, "x", ""},
		"unknown code":       {response{flags: failing, code: 999, outputs: []ipc.Descriptor{large}}, 0, "", "frame"},
		"absent":             {response{}, infer.Internal, "Stub process '' is not healthy.", ""},
		"absent with output": {response{outputs: []ipc.Descriptor{large}}, 0, "", "handle"},
		"not final":          {response{flags: ipc.FlagPresent, outputs: []ipc.Descriptor{large}}, 0, "", "handle"},
		"unknown name":       {response{flags: good, outputs: []ipc.Descriptor{large, processtest.InArena(5, 0, 1)}}, 0, "", "name"},
		"beyond the arena":   {response{flags: good, outputs: []ipc.Descriptor{large, processtest.InArena(1, processtest.Arena, 1)}}, 0, "", "descriptor"},
		"not in its place":   {response{flags: good, outputs: []ipc.Descriptor{large, elsewhere}}, 0, "", "descriptor"},
		"beyond its place":   {response{flags: good, outputs: []ipc.Descriptor{small, written(70_001)}}, 0, "", "descriptor"},
		"other elements":     {response{flags: good, outputs: []ipc.Descriptor{large, strings3}}, 0, "", "descriptor"},
	} {
		for kind, backing := range processtest.Backings {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := newFakeLife(t, backing)
				l := s.newLife()
				v := s.answer(l, func(shm.Ticket, uint64) []byte { return executedBody(nil, test.response) })
				if rule := processtest.RuleOf(v.err); rule != test.rule {
					t.Fatalf("got error %v, want one of rule %q", v.err, test.rule)
				}
				if v.err == nil {
					r := v.responses[0]
					switch {
					case test.want == "" && (r.Err != nil || len(r.Outputs) != len(test.response.outputs)):
						t.Errorf("got response %+v (error %v), want all outputs", r, r.Err)
					case test.want != "" && (r.Err == nil || r.Err.Message != test.want || r.Err.Code != test.code):
						t.Errorf("got error %v, want %q of code %d", r.Err, test.want, test.code)
					}
				}
				s.release(l, v)
				if got, want := s.Returned(t), uint64(len(test.response.outputs)); v.err == nil && got != want {
					t.Errorf("%d tickets went back to the stub, want %d", got, want)
				}
			})
		}
	}
}

// TestCopiesAreBounded names one block in many outputs. Copies from a named file are limited to the
// memory that the stub may use, and count until the response has been sent.
func TestCopiesAreBounded(t *testing.T) {
	s := newFakeLife(t, processtest.Backings["named"])
	l := s.newLife()
	body := executedBody(nil,
		response{request: 0, flags: good, outputs: []ipc.Descriptor{processtest.InArena(1, 0, processtest.Arena/2), processtest.InArena(2, 0, processtest.Arena/2)}},
		response{request: 1, flags: good, outputs: []ipc.Descriptor{processtest.InArena(1, 0, 1), processtest.InArena(2, 0, processtest.Arena)}},
	)
	v := s.answer(l, func(shm.Ticket, uint64) []byte { return body })
	if v.err != nil {
		t.Fatal(v.err)
	}
	if r := v.responses[0]; r.Err != nil || len(r.Outputs) != 2 {
		t.Errorf("first request: got error %v, want none", r.Err)
	}
	if r := v.responses[1]; r.Err == nil || r.Err.Code != infer.Unavailable {
		t.Errorf("second request: got error %v, want one of code Unavailable", r.Err)
	}
	s.release(l, v)
	if n := s.Returned(t); n != 4 {
		t.Errorf("%d tickets went back to the stub, want 4", n)
	}
}

// FuzzAnswers handles arbitrary EXECUTED bodies. The batch is answered or the life ends, memory is
// bounded, and the stub gets back everything it has lent.
func FuzzAnswers(f *testing.F) {
	for _, name := range []string{"executed", "executed_failed", "response"} {
		f.Add(ipctest.Body(f, name), false)
	}
	lives := make(map[bool]*fakeLife)
	for named, kind := range map[bool]string{false: "sealed", true: "named"} {
		lives[named] = newFakeLife(f, processtest.Backings[kind])
	}
	var lent shm.Ticket
	var passed ipc.Descriptor
	s := lives[false]
	l := s.newLife()
	v := s.answer(l, func(ticket shm.Ticket, at uint64) []byte {
		lent = ticket
		passed = ipc.Descriptor{
			Name: 3, Type: uint8(infer.FP32), Region: ipc.InRequests, Offset: at, Length: 8192, Ticket: uint64(ticket), Shape: []int64{1, 2048},
		}
		return nil
	})
	s.release(l, v)
	strings2 := processtest.InArena(4, 0, 12)
	strings2.Type, strings2.Shape = uint8(infer.Bytes), []int64{2}
	inFrame := ipc.Descriptor{Name: 1, Type: uint8(infer.Uint8), Offset: ipc.HeaderSize, Length: 4, Shape: []int64{4}}
	outputs := []ipc.Descriptor{processtest.InArena(1, 0, 8192), passed, strings2, inFrame, processtest.InArena(2, 100, 0)}
	for _, named := range []bool{false, true} {
		f.Add(executedBody([]shm.Ticket{lent}, response{flags: good, outputs: outputs, parameters: `{"a":1,"b":"x","c":true}`},
			response{request: 1, flags: failing, code: 2, text: "no", outputs: outputs[:1]}, response{request: 2}), named)
		f.Add(executedBody(nil, response{flags: good, outputs: outputs, parameters: `{"a":1e9}`}), named)
		f.Add(executedBody([]shm.Ticket{lent, lent}, response{request: 2, flags: good, outputs: outputs[:2]}), named)
		f.Add(executedBody(nil, response{flags: good, outputs: []ipc.Descriptor{written(65_536), outputs[0]}}, response{request: 1, flags: failing, outputs: []ipc.Descriptor{written(0)}}), named)
		f.Add(executedBody(nil, response{flags: good, outputs: []ipc.Descriptor{written(70_001)}}), named)
		f.Add(executedBody(nil, response{flags: good, outputs: []ipc.Descriptor{processtest.InArena(1, math.MaxUint64-100, 1000)}}), named)
	}
	f.Fuzz(func(t *testing.T, body []byte, named bool) {
		s := *lives[named]
		s.t = t
		before := s.Returned(t)
		l := s.newLife()
		var v answered
		n := testkit.Allocated(func() {
			v = s.answer(l, func(shm.Ticket, uint64) []byte { return body })
		})
		if limit := 256*uint64(len(body)) + 2*processtest.Arena; n > limit {
			t.Errorf("%d bytes were allocated for a body of %d, want at most %d", n, len(body), limit)
		}
		s.release(l, v)
		if v.err == nil {
			if got, want := s.Returned(t)-before, arenaDescriptors(t, body); got != want {
				t.Errorf("%d tickets went back to the stub, want %d", got, want)
			}
		}
	})
}

// FuzzFrames handles arbitrary frames other than EXECUTED in any phase.
func FuzzFrames(f *testing.F) {
	const completing phase = 0x80 // AUTO_COMPLETE was sent
	for name, seed := range map[string]struct {
		kind  ipc.Kind
		phase phase
	}{
		"hello": {ipc.Hello, phaseStarted}, "initialized": {ipc.Initialized, phaseHello}, "initialized_error": {ipc.Initialized, phaseHello},
		"completed": {ipc.Completed, phaseHello | completing}, "completed_error": {ipc.Completed, phaseHello | completing},
		"ready": {ipc.ReadyAnswer, phaseInitialized}, "ready_error": {ipc.ReadyAnswer, phaseInitialized},
		"finalized": {ipc.Finalized, phaseInitialized}, "log": {ipc.Log, phaseHello}, "name_up": {ipc.Name, phaseInitialized},
		"released": {ipc.Released, phaseInitialized}, "executed": {ipc.Executed, phaseInitialized}, "response": {ipc.Response, phaseInitialized},
		"call_load": {ipc.Call, phaseInitialized}, "call_ready": {ipc.Call, phaseHello}, "call_new_family": {ipc.Call, phaseInitialized},
		"metric": {ipc.Metric, phaseInitialized},
	} {
		f.Add(uint16(seed.kind), uint8(seed.phase), uint64(5), ipctest.Body(f, name))
	}
	f.Add(uint16(ipc.Released), uint8(phaseInitialized), uint64(0), []byte{0, 0, 0, 0, 1, 0, 0, 0})
	f.Add(uint16(ipc.Hello), uint8(phaseStarted), uint64(0), append([]byte("\x81\xa1x"), bytes.Repeat([]byte{0x91}, 1000)...))
	s := newFakeLife(f, processtest.Backings["sealed"])
	f.Fuzz(func(t *testing.T, kind uint16, at uint8, id uint64, body []byte) {
		l := s.newLife()
		if phase(at)&completing != 0 {
			l.told.Store(toldAutoComplete)
		}
		asked := &check{probe: 5, settled: make(chan struct{})}
		l.readiness.check = asked
		l.seen = phase(at) &^ completing % (phaseFinalized + 1)
		block, err := s.pool.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.loans.Lend(block)
		block.Release()
		n := testkit.Allocated(func() { err = l.handle(ipc.Frame{Kind: ipc.Kind(kind), ID: id, Body: body}) })
		if err != nil && processtest.RuleOf(err) == "" {
			t.Errorf("got error %v, want a protocol error", err)
		}
		select {
		case <-asked.settled:
			if ipc.Kind(kind) != ipc.ReadyAnswer || id != 5 || l.readiness.check != nil {
				t.Errorf("frame of kind %d, id %d has answered a question of probe 5", kind, id)
			}
		default:
			if l.readiness.check != asked {
				t.Error("the question is forgotten without an answer")
			}
		}
		limit := 16*uint64(len(body)) + 64<<10
		if ipc.Kind(kind) == ipc.Call { // its lists have several numbers per element
			limit *= 4
		}
		if n > limit {
			t.Errorf("%d bytes were allocated for a body of %d, want at most %d", n, len(body), limit)
		}
		l.calls.Close(false)
		if names := l.decoder.Names.List(); len(names) > 6 || len(names) == 6 && (err != nil || names[5] != string(body)) {
			t.Errorf("table of names is %q, with error %v", names, err)
		}
		l.loans.Close()
		if n := s.pool.Stats().Blocks; n != 0 {
			t.Errorf("%d blocks of requests are in use, want none", n)
		}
	})
}

// TestShortAnswersEndWhenTheyCome checks that a response counts as short only if all its bytes
// arrived in a small frame.
func TestShortAnswersEndWhenTheyCome(t *testing.T) {
	inFrame, elsewhere := infer.Tensor{Data: make([]byte, 4)}, infer.Tensor{Memory: &shm.Extent{}}
	for name, test := range map[string]struct {
		body     int
		response *infer.Response
		want     bool
	}{
		"in the frame": {200, &infer.Response{Outputs: []infer.Tensor{inFrame}}, true},
		"an error":     {200, infer.ErrorResponse(infer.Errorf(infer.Internal, "not today")), true},
		"long":         {5000, &infer.Response{Outputs: []infer.Tensor{inFrame}}, false},
		"elsewhere":    {200, &infer.Response{Outputs: []infer.Tensor{inFrame, elsewhere}}, false},
		"later":        {200, nil, false},
	} {
		if got := short(make([]byte, test.body), test.response); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// TestReportedTimesAreBounded checks that times reported by a plugin are in order, after the batch
// was sent and before its response arrived.
func TestReportedTimesAreBounded(t *testing.T) {
	const early, late = 0, math.MaxUint64
	for name, told := range map[string][4]uint64{ // begun, called, returned, ended: early, late, or ns after the batch was sent
		"in order": {10, 20, 30, 40}, "before it was sent": {early, early, early, early}, "to come": {late, late, late, late},
		"backwards": {40, 30, 20, 10}, "begun later": {late, early, early, early}, "negative": {1 << 63, 1 << 63, 1 << 63, 1 << 63},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeLife(t, processtest.Backings["sealed"])
			l := s.newLife()
			program := &timed{}
			l.in.model.program = program
			sent := uint64(backend.Now())
			for i := range told {
				if told[i] > 0 && told[i] < 1000 {
					told[i] += sent
				}
			}
			s.begun = int64(sent)
			v := s.answer(l, func(shm.Ticket, uint64) []byte {
				body := make([]byte, ipc.ExecutedSize+ipc.ReportedSize)
				head := ipc.ExecutedHead{Status: ipc.StatusReported, Called: int64(told[1]), Returned: int64(told[2]), Text: ipc.ReportedSize}
				ipc.PutReported(head.Put(body), int64(told[0]), int64(told[3]))
				return body
			})
			if v.err != nil {
				t.Fatal(v.err)
			}
			after := backend.Now()
			r := v.report
			if r.Start < int64(sent) || r.Start > r.ComputeStart || r.ComputeStart > r.ComputeEnd || r.ComputeEnd > r.End || r.End > after {
				t.Errorf("got times %d %d %d %d, want them in order and between %d and %d", r.Start, r.ComputeStart, r.ComputeEnd, r.End, sent, after)
			}
			if name == "in order" && (r.Start != int64(told[0]) || r.ComputeStart != int64(told[1]) || r.ComputeEnd != int64(told[2]) || r.End != int64(told[3])) {
				t.Errorf("got times %d %d %d %d, want %v", r.Start, r.ComputeStart, r.ComputeEnd, r.End, told)
			}
			s.release(l, v)
		})
	}
}

// timed is a program whose processes report execution times themselves.
type timed struct{ FakeProgram }

func (*timed) Capabilities() ProgramCapabilities { return ProgramCapabilities{ReportsTimes: true} }
