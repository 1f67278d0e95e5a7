package process

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/nereid-serving/nereid/shm"
)

// openLife is a life whose batches a test answers with several frames. It has a batch of two
// requests in execution, and a batch ahead with one request.
type openLife struct {
	s    *fakeLife
	l    *life
	held []*infer.Response
	// finals counts the final responses of each request.
	finals [3]int
	done   int
}

func (s *fakeLife) openLife(decoupled bool) *openLife {
	c := &openLife{s: s, l: s.newLife()}
	l := c.l
	l.decoupled = decoupled
	l.seen = phaseInitialized
	l.setUp()
	task := func(i int) *backend.Task {
		return &backend.Task{Request: s.request(), Send: func(r *infer.Response) {
			if c.finals[i] > 0 {
				s.t.Errorf("request %d: got a response behind the last one", i)
			}
			if r.Final {
				c.finals[i]++
			}
			ReadAll(r)
			c.held = append(c.held, r)
		}}
	}
	done := func(_ *backend.Batch, report backend.Report) {
		c.done++
		for _, task := range report.Rescheduled { // like a scheduler that cannot reschedule
			task.Send(infer.ErrorResponse(unhealthy("")))
		}
	}
	l.current[0] = batchInFlight{number: 1, batch: &backend.Batch{Tasks: []*backend.Task{task(0), task(1)}, Done: done}}
	l.current[1] = batchInFlight{number: 2, batch: &backend.Batch{Tasks: []*backend.Task{task(2)}, Done: done}}
	l.count, l.number = 2, 2
	l.encoded.Store(2)
	return c
}

// end ends the life and checks that nothing is left.
func (c *openLife) end() {
	c.s.t.Helper()
	c.l.mu.Lock()
	var left []batchInFlight
	for c.l.count > 0 {
		left = append(left, c.l.popLocked())
	}
	open := c.l.endOpenLocked()
	c.l.mu.Unlock()
	for i := range left {
		c.l.abandon(&left[i], true)
	}
	for _, s := range open {
		s.task.Send(infer.ErrorResponse(unhealthy("")))
	}
	for i, n := range c.finals {
		if n != 1 {
			c.s.t.Errorf("request %d: got %d last responses, want one", i, n)
		}
	}
	if c.done != 2 {
		c.s.t.Errorf("%d batches were done, want 2", c.done)
	}
	for _, r := range c.held {
		r.Release()
	}
	c.l.loans.Close()
	c.l.bls.Close()
	if n := c.s.channel.Arena().Outstanding(); n != 0 {
		c.s.t.Errorf("%d descriptors are outstanding, want none", n)
	}
	if n := c.l.decoder.Copied(); n != 0 {
		c.s.t.Errorf("%d bytes of copies are in use, want none", n)
	}
}

// stubFrame is a frame that a test sends as the stub.
type stubFrame struct {
	kind   ipc.Kind
	batch  uint64
	status uint32
	response
}

func (f stubFrame) frame() ipc.Frame {
	le := binary.LittleEndian
	if f.kind == ipc.Executed {
		var responses []response
		if f.flags != 0 {
			responses = append(responses, f.response)
		}
		body := executedBody(nil, responses...)
		le.PutUint32(body[4:], f.status)
		return ipc.Frame{Kind: ipc.Executed, ID: f.batch, Body: body}
	}
	body := executedBody(nil, f.response)[ipc.ExecutedSize:]
	handle := f.batch<<32 | f.request
	le.PutUint64(body, handle)
	return ipc.Frame{Kind: ipc.Response, ID: handle, Body: append(make([]byte, 8), body...)}
}

func sent(batch, request uint64, flags uint32) stubFrame {
	f := stubFrame{kind: ipc.Response, batch: batch}
	f.request, f.flags = request, flags
	return f
}

// TestResponsesOutOfTurnEndTheLife sends frames of stubs that follow the rules or break one, and
// checks the rule.
func TestResponsesOutOfTurnEndTheLife(t *testing.T) {
	executed := func(batch uint64) stubFrame { return stubFrame{kind: ipc.Executed, batch: batch} }
	answering := func(request uint64, flags uint32) stubFrame {
		f := executed(1)
		f.request, f.flags = request, flags
		return f
	}
	failed := stubFrame{kind: ipc.Executed, batch: 1, status: ipc.StatusFailed}
	present, final := ipc.FlagPresent, ipc.FlagFinal
	many := make([]stubFrame, windowResponses)
	for i := range many {
		many[i] = sent(1, 0, present)
	}
	with := func(f stubFrame, outputs ...ipc.Descriptor) stubFrame {
		f.outputs = outputs
		return f
	}
	half := with(sent(1, 0, present), processtest.InArena(1, 0, processtest.Arena))
	var full []stubFrame
	for range windowBytes / processtest.Arena {
		full = append(full, half)
	}
	for name, test := range map[string]struct {
		frames []stubFrame
		rule   string // the rule that the last frame breaks, or ""
		once   bool   // not decoupled
	}{
		"during execute":             {[]stubFrame{sent(1, 0, present), sent(1, 1, present|final), sent(1, 0, final), executed(1)}, "", false},
		"after execute":              {[]stubFrame{executed(1), sent(1, 1, present), sent(1, 0, good), sent(1, 1, final)}, "", false},
		"both":                       {[]stubFrame{sent(1, 0, present), executed(1), sent(1, 0, present), executed(2), sent(2, 0, good), sent(1, 0, final)}, "", false},
		"error":                      {[]stubFrame{sent(1, 0, failing&^final), sent(1, 0, failing)}, "", false},
		"a window":                   {many, "", false},
		"a window and the last":      {append(many[:len(many):len(many)], sent(1, 0, good)), "", false},
		"more than a window":         {append(many[:len(many):len(many)], sent(1, 0, present)), "quota", false},
		"a window of bytes":          {full, "", false},
		"more bytes than a window":   {append(full[:len(full):len(full)], sent(1, 0, present)), "quota", false},
		"one":                        {[]stubFrame{sent(1, 0, present), executed(1), sent(1, 0, final)}, "", true},
		"one and an error":           {[]stubFrame{sent(1, 0, present), failed}, "", true},
		"two":                        {[]stubFrame{sent(1, 0, present), sent(1, 0, present)}, "quota", true},
		"answered and sent":          {[]stubFrame{sent(1, 1, good), answering(0, good)}, "", true},
		"rescheduled":                {[]stubFrame{sent(1, 0, present), answering(0, ipc.FlagReschedule), sent(1, 1, final)}, "", false},
		"after it was rescheduled":   {[]stubFrame{answering(0, ipc.FlagReschedule), sent(1, 0, present)}, "handle", false},
		"rescheduled after FINAL":    {[]stubFrame{sent(1, 0, final), answering(0, ipc.FlagReschedule)}, "handle", false},
		"rescheduled with more":      {[]stubFrame{answering(0, ipc.FlagReschedule|final)}, "frame", false},
		"rescheduled by itself":      {[]stubFrame{sent(1, 0, ipc.FlagReschedule)}, "frame", false},
		"rescheduled and failed":     {[]stubFrame{{kind: ipc.Executed, batch: 1, status: ipc.StatusFailed, response: response{flags: ipc.FlagReschedule}}}, "frame", false},
		"after FINAL":                {[]stubFrame{sent(1, 0, final), sent(1, 0, present)}, "handle", false},
		"after FINAL and execute":    {[]stubFrame{sent(1, 0, final), executed(1), sent(1, 0, final)}, "handle", false},
		"answered after FINAL":       {[]stubFrame{sent(1, 0, good), answering(0, good)}, "handle", true},
		"after the answer":           {[]stubFrame{answering(0, good), sent(1, 0, final)}, "handle", true},
		"after the failure":          {[]stubFrame{sent(1, 0, present), failed, sent(1, 0, final)}, "handle", false},
		"of the batch ahead":         {[]stubFrame{sent(2, 0, present)}, "handle", false},
		"of no batch":                {[]stubFrame{sent(3, 0, present)}, "handle", false},
		"of no request":              {[]stubFrame{sent(1, 2, present)}, "handle", false},
		"of a far batch":             {[]stubFrame{executed(1), executed(2), sent(1<<31, 0, present)}, "handle", false},
		"nothing":                    {[]stubFrame{sent(1, 0, 0)}, "frame", false},
		"final flag with an output":  {[]stubFrame{with(sent(1, 0, final), processtest.InArena(1, 0, 4))}, "frame", false},
		"output of an unknown name":  {[]stubFrame{with(sent(1, 0, present), processtest.InArena(1, 0, 4), processtest.InArena(9, 0, 4))}, "name", false},
		"output outside of the file": {[]stubFrame{with(sent(1, 0, present), processtest.InArena(1, 0, 4), processtest.InArena(1, processtest.Arena, 4))}, "descriptor", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeLife(t, processtest.Backings["sealed"])
			c := s.openLife(!test.once)
			for i, f := range test.frames {
				err := c.l.handle(f.frame())
				want := ""
				if i == len(test.frames)-1 {
					want = test.rule
				}
				if rule := processtest.RuleOf(err); rule != want {
					t.Fatalf("frame %d: got error %v, want one of rule %q", i, err, want)
				}
			}
			c.end()
		})
	}
}

// TestCreditIsGivenAtHalfAWindow checks that the stub receives credit when half a window has left
// the server, counted in responses or bytes, and no sooner.
func TestCreditIsGivenAtHalfAWindow(t *testing.T) {
	s := newFakeLife(t, processtest.Backings["sealed"])
	c := s.openLife(true)
	down := make([]byte, shm.DownSize)
	credits := func() (list [][2]uint64) {
		if _, err := s.peer.Down.ReadAt(down, 0); err != nil {
			t.Fatal(err)
		}
		le := binary.LittleEndian
		for at := uint64(0); at < le.Uint64(down[shm.TailOffset:]); {
			frame := down[shm.RingOffset+at:]
			if kind := ipc.Kind(le.Uint16(frame[4:])); kind != ipc.Credit || le.Uint64(frame[16:]) != 1<<32 {
				t.Fatalf("got a frame of %s for %#x, want CREDIT of the first request", kind, le.Uint64(frame[16:]))
			}
			list = append(list, [2]uint64{uint64(le.Uint32(frame[24:])), le.Uint64(frame[32:])})
			at += uint64(ipc.Align8(int(le.Uint32(frame))))
		}
		return list
	}
	want := func(when string, list ...[2]uint64) {
		t.Helper()
		if got := credits(); fmt.Sprint(got) != fmt.Sprint(list) {
			t.Fatalf("%s: got credits %v, want %v", when, got, list)
		}
	}
	send := func(size uint64, flags uint32) {
		t.Helper()
		f := sent(1, 0, flags)
		if size > 0 {
			f.outputs = []ipc.Descriptor{processtest.InArena(1, 0, size)}
		}
		if err := c.l.handle(f.frame()); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(n int) {
		for _, r := range c.held[:n] {
			r.Release()
		}
		c.held = c.held[n:]
	}
	for range windowResponses {
		send(10, ipc.FlagPresent)
	}
	leave(windowResponses/2 - 1)
	want("one short of half")
	leave(1)
	want("half", [2]uint64{windowResponses / 2, 10 * windowResponses / 2})
	leave(windowResponses / 2)
	want("all", [2]uint64{windowResponses / 2, 10 * windowResponses / 2}, [2]uint64{windowResponses / 2, 10 * windowResponses / 2})
	before := credits()
	for range windowBytes / processtest.Arena {
		send(processtest.Arena, ipc.FlagPresent)
	}
	leave(windowBytes / processtest.Arena / 2)
	want("half of the bytes", append(before, [2]uint64{windowBytes / processtest.Arena / 2, windowBytes / 2})...)
	before = credits()
	send(100, good)
	leave(len(c.held))
	want("after FINAL", before...)
	c.end()
}

// FuzzResponses handles sequences of arbitrary frames with responses. Each is accepted or ends the
// life, every request gets one final response, and the stub's loans are returned.
func FuzzResponses(f *testing.F) {
	for _, name := range []string{"response", "response_final", "executed", "executed_failed"} {
		frame := ipctest.Frame(f, name)
		f.Add(frame, true)
		f.Add(append(frame, frame...), false)
	}
	seeds := [][]stubFrame{
		{sent(1, 0, ipc.FlagPresent), sent(1, 1, good), {kind: ipc.Executed, batch: 1}, sent(1, 0, ipc.FlagFinal)},
		{sent(1, 0, ipc.FlagPresent), {kind: ipc.Executed, batch: 1, response: response{flags: ipc.FlagReschedule}}, {kind: ipc.Executed, batch: 2}, sent(2, 0, good)},
		{sent(1, 0, ipc.FlagPresent), {kind: ipc.Executed, batch: 1, status: ipc.StatusFailed}, sent(2, 0, good)},
	}
	for _, frames := range seeds {
		var all []byte
		for _, one := range frames {
			one.outputs = []ipc.Descriptor{processtest.InArena(1, 0, 5000)}
			frame := one.frame()
			all = binary.LittleEndian.AppendUint32(all, uint32(ipc.HeaderSize+len(frame.Body)))
			all = binary.LittleEndian.AppendUint32(all, uint32(frame.Kind))
			all = binary.LittleEndian.AppendUint64(all, 7)
			all = append(binary.LittleEndian.AppendUint64(all, frame.ID), frame.Body...)
		}
		f.Add(all, true)
		f.Add(all, false)
	}
	s := newFakeLife(f, processtest.Backings["sealed"])
	f.Fuzz(func(t *testing.T, frames []byte, decoupled bool) {
		s := *s
		s.t = t
		c := s.openLife(decoupled)
		for len(frames) >= ipc.HeaderSize {
			le := binary.LittleEndian
			size := max(int(le.Uint32(frames)%(1<<16)), ipc.HeaderSize)
			size = min(size, len(frames))
			kind := ipc.Executed
			if le.Uint16(frames[4:])%2 == 1 {
				kind = ipc.Response
			}
			err := c.l.handle(ipc.Frame{Kind: kind, ID: le.Uint64(frames[16:]), Body: frames[ipc.HeaderSize:size]})
			if err != nil && processtest.RuleOf(err) == "" {
				t.Errorf("got error %v, want a protocol error", err)
			}
			if err != nil {
				break
			}
			frames = frames[size:]
		}
		c.end()
	})
}
