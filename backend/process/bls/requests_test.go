package bls

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

const patience = 60 * time.Second

// session is a life with batches up to last, none of which is being executed.
type session struct {
	t        testing.TB
	requests *Requests
	last     uint64
}

func (s *session) Execution(batch uint64) ([]*infer.Request, bool, error) {
	if batch > s.last {
		return nil, false, &ipc.ProtocolError{Rule: "handle"}
	}
	return nil, false, nil
}

func (s *session) Traced([]byte) *infer.Request { return nil }

func (s *session) Handle(f ipc.Frame) error {
	if f.Kind == ipc.Infer {
		return s.requests.Receive(f)
	}
	return s.requests.Control(f)
}

func (s *session) Fail(err error) { s.t.Errorf("the life is ended: %v", err) }

// bench is a life without a process. Its model makes BLS requests.
type bench struct {
	*processtest.Peer
	t        testing.TB
	life     processtest.Life
	session  *session
	requests *Requests
	host     *processtest.Host
}

func newBench(t testing.TB, backing shm.Backing) *bench {
	t.Helper()
	return benchOn(t, processtest.New(t, backing))
}

// benchOn starts a life with the golden frames' names.
func benchOn(t testing.TB, p *processtest.Peer) *bench {
	t.Helper()
	b := &bench{Peer: p, t: t, life: p.NewLife(), session: &session{t: t}, host: &processtest.Host{}}
	for _, set := range []**frames.Names{&b.life.Encoder.Names, &b.life.Decoder.Names} {
		names, err := frames.NewNames([]string{"IN0"}, []string{"OUT0", "OUT1", "OUT2", "OUT3"})
		if err != nil {
			t.Fatal(err)
		}
		*set = names
	}
	b.requests = New(Config{
		Model: "m", Version: 3, Host: b.host,
		OneResponse: func(model string) string { return fmt.Sprintf("Model %s may send any number of responses.", model) },
		Channel:     p.Channel, Decoder: b.life.Decoder, Encoder: b.life.Encoder, Pool: p.Pool, Log: zerolog.Nop(),
	}, b.session)
	b.session.requests = b.requests
	p.Skip(t)
	return b
}

// sent takes the INFER_RESPONSE frames off the down ring.
func (b *bench) sent() []processtest.Response {
	b.t.Helper()
	return b.Responses(b.t, b.life.Loans)
}

// settled ends the life and checks that nothing is left.
func (b *bench) settled() {
	b.t.Helper()
	b.requests.Close()
	if _, held := b.host.Targets(); held != 0 {
		b.t.Errorf("%d versions are held, want none", held)
	}
	for i := range b.host.Taken() { // end requests in flight
		c := b.host.Request(i)
		if c.Ended.Load() {
			continue
		}
		if c.Context.Err() == nil {
			b.t.Errorf("call %d is not cancelled although the life has ended", i)
		}
		c.Send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "")))
	}
	b.life.Loans.Close()
	if n := len(b.requests.all); n != 0 {
		b.t.Errorf("%d BLS requests are in flight, want none", n)
	}
	if n := b.requests.copied; n != 0 {
		b.t.Errorf("%d bytes of copies are counted, want none", n)
	}
	if n := b.Channel.Arena().Outstanding(); n != 0 {
		b.t.Errorf("%d descriptors are outstanding, want none", n)
	}
	if n := b.Pool.Stats().Blocks; n != 0 {
		b.t.Errorf("%d blocks of requests are in use, want none", n)
	}
}

// want checks that exactly one frame was sent: an error with the given text, or a success if text
// is "".
func (b *bench) want(number uint64, code infer.Code, text string) processtest.Response {
	b.t.Helper()
	list := b.sent()
	if len(list) != 1 || list[0].Number != number {
		b.t.Fatalf("got frames %+v, want one for inference %d", list, number)
	}
	a := list[0]
	failed := a.Body.Flags&ipc.FlagError != 0
	if failed != (text != "") || string(a.Body.Error) != text || failed && infer.Code(a.Body.Code) != code {
		b.t.Errorf("got flags %#x, code %d, error %q, want %d, %q", a.Body.Flags, a.Body.Code, a.Body.Error, code, text)
	}
	return a
}

// ask handles an INFER frame of the model.
func (b *bench) ask(number uint64, i processtest.Infer) error {
	if i.Model == "" {
		i.Model = "other"
	}
	return b.session.Handle(ipc.Frame{Kind: ipc.Infer, ID: number, Body: i.Encode()})
}

func (b *bench) mustAsk(number uint64, i processtest.Infer) {
	b.t.Helper()
	if err := b.ask(number, i); err != nil {
		b.t.Fatalf("INFER %d: got error %v", number, err)
	}
}

func (b *bench) word(kind ipc.Kind, number uint64, n uint32) {
	b.t.Helper()
	body := binary.LittleEndian.AppendUint64(nil, uint64(n))
	if err := b.session.Handle(ipc.Frame{Kind: kind, ID: number, Body: body}); err != nil {
		b.t.Fatal(err)
	}
}

// TestInferPassesInputsOn checks that inputs from all regions reach the called model, and that the
// stub's own are returned at once.
func TestInferPassesInputsOn(t *testing.T) {
	for kind, backing := range processtest.Backings {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, backing)
			defer b.settled()
			block, err := b.Pool.Alloc(8192)
			if err != nil {
				t.Fatal(err)
			}
			copy(block.Bytes(), testkit.Pattern(8192, 1))
			ticket, _ := b.life.Loans.Lend(block)
			block.Release()
			large := processtest.InArena(1, 0, 8192)
			small := processtest.InArena(2, 8192, 100)
			passed := ipc.Descriptor{
				Name: 3, Type: uint8(infer.FP32), Region: ipc.InRequests, Offset: block.Offset(), Length: 8192, Ticket: uint64(ticket), Shape: []int64{1, 2048},
			}
			b.mustAsk(1, processtest.Infer{Inputs: []ipc.Descriptor{large, small, passed}})
			if n := b.Returned(t); n != 2 {
				t.Errorf("%d tickets went back to the stub, want 2", n)
			}
			if b.host.Taken() != 1 {
				t.Fatalf("%d requests came, want 1", b.host.Taken())
			}
			r := b.host.Request(0).Request
			if r.Model != "other" || r.Version != infer.LatestVersion || len(r.Inputs) != 3 {
				t.Fatalf("got request %+v", r)
			}
			for i, n := range []int{8192, 100, 8192} {
				if len(r.Inputs[i].Data) != n || r.Inputs[i].Name != fmt.Sprintf("OUT%d", i) {
					t.Errorf("input %d: got %q of %d bytes, want %d", i, r.Inputs[i].Name, len(r.Inputs[i].Data), n)
				}
			}
			if r.Inputs[2].Memory != infer.Memory(block) || !bytes.Equal(r.Inputs[2].Data, testkit.Pattern(8192, 1)) {
				t.Errorf("what is lent was copied, or changed")
			}
			if err := b.life.Loans.Return(ticket); err != nil {
				t.Fatal(err)
			}
			b.host.Request(0).Send(&infer.Response{Final: true})
			b.want(1, 0, "")
			b.host.Forget(b.host.Taken())
		})
	}
}

// TestInferRefusesWithoutAskingTheModel checks the errors of requests that never reach the other
// model.
func TestInferRefusesWithoutAskingTheModel(t *testing.T) {
	const prefix = "Model other - Error when running inference: "
	unknown := infer.Errorf(infer.NotFound, "Request for unknown model: 'other' is not found")
	for name, test := range map[string]struct {
		host *processtest.Host
		ask  processtest.Infer
		code infer.Code
		want string
	}{
		"unknown":   {&processtest.Host{Unknown: unknown}, processtest.Infer{}, infer.NotFound, prefix + unknown.Message},
		"unready":   {&processtest.Host{Asks: true, Unready: true}, processtest.Infer{}, infer.Unavailable, prefix + "Failed for execute the inference request. Model 'other' is not ready."},
		"decoupled": {&processtest.Host{IsDecoupled: true}, processtest.Infer{}, infer.Unsupported, prefix + "Model other may send any number of responses."},
		"refused":   {&processtest.Host{Refuse: infer.Errorf(infer.InvalidArg, "no")}, processtest.Infer{}, infer.InvalidArg, prefix + "no"},
		"huge int":  {&processtest.Host{}, processtest.Infer{Parameters: `{"a":9223372036854775808}`}, infer.Internal, prefix + "Unsupported value type on parameters"},
		"unknown and huge int": {
			&processtest.Host{Unknown: unknown}, processtest.Infer{Parameters: `{"a":9223372036854775808}`}, infer.NotFound, prefix + unknown.Message,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.requests.Host = test.host
			test.ask.Inputs = []ipc.Descriptor{processtest.InArena(1, 0, 8192)}
			b.mustAsk(7, test.ask)
			testkit.Eventually(t, patience, func() bool { return b.requests.find(7) == nil })
			a := b.want(7, test.code, test.want)
			if found, held := test.host.Targets(); found != 1 || held != 0 {
				t.Errorf("the version was looked up %d times and is held %d times, want 1 and 0", found, held)
			}
			if a.Body.Flags != ipc.FlagPresent|ipc.FlagFinal|ipc.FlagError {
				t.Errorf("got flags %#x, want an error that is final", a.Body.Flags)
			}
		})
	}
}

// TestInferReturnsTheModelsResponses checks that the other model's responses arrive, or Triton's
// errors if they cannot.
func TestInferReturnsTheModelsResponses(t *testing.T) {
	large := infer.Tensor{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{5000}, Data: testkit.Pattern(5000, 1)}
	huge := infer.Tensor{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{1 << 30}, Data: make([]byte, 600<<10)}
	for name, test := range map[string]struct {
		response infer.Response
		want     string
	}{
		"nothing":   {infer.Response{}, ""},
		"outputs":   {infer.Response{Outputs: []infer.Tensor{large, {Name: "NEW", DataType: infer.Uint8, Shape: []int64{3}, Data: []byte("abc")}}}, ""},
		"error":     {infer.Response{Err: infer.Errorf(infer.Internal, "ouch")}, "ouch"},
		"long text": {infer.Response{Err: infer.Errorf(infer.Internal, "%s", strings.Repeat("x", 100_000))}, ""},
		"empty":     {infer.Response{Empty: true}, "Unexpected empty response."},
		"double":    {infer.Response{Parameters: []infer.Parameter{{Name: "p", Kind: infer.DoubleParameter, Double: 1}}, Outputs: []infer.Tensor{large}}, "Unsupported parameter type for parameter 'p'."},
		"no memory": {infer.Response{Outputs: []infer.Tensor{huge, huge}}, "Failed to increase the shared memory pool size to "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.mustAsk(1, processtest.Infer{})
			r := test.response
			r.Final = true
			var released atomic.Int32
			r.Slot = onRelease(func() { released.Add(1) })
			b.host.Request(0).Send(&r)
			testkit.Eventually(t, patience, func() bool { return b.requests.find(1) == nil }) // large responses are copied asynchronously
			if n := released.Load(); n != 1 {
				t.Errorf("the response was released %d times, want once", n)
			}
			b.host.Forget(b.host.Taken())
			if name == "long text" { // sent in a block
				return
			}
			list := b.sent()
			if len(list) != 1 || list[0].Body.Flags&ipc.FlagFinal == 0 {
				t.Fatalf("got frames %+v, want one that is final", list)
			}
			a := list[0]
			if !strings.HasPrefix(string(a.Body.Error), test.want) || (test.want == "") != (len(a.Body.Error) == 0) {
				t.Errorf("got error %q, want %q", a.Body.Error, test.want)
			}
			if name == "no memory" && infer.Code(a.Body.Code) != infer.Unavailable {
				t.Errorf("got code %d, want %d", a.Body.Code, infer.Unavailable)
			}
			if test.want == "" && len(a.Outputs) != len(r.Outputs) {
				t.Fatalf("got %d outputs, want %d", len(a.Outputs), len(r.Outputs))
			}
			for i := range a.Outputs {
				if !bytes.Equal(a.Outputs[i], r.Outputs[i].Data) || b.life.Encoder.Names.List()[a.Body.Outputs[i].Name] != r.Outputs[i].Name {
					t.Errorf("output %d differs", i)
				}
			}
		})
	}
}

// onRelease is memory that calls a function when it is released.
type onRelease func()

func (onRelease) Retain()    {}
func (f onRelease) Release() { f() }

// TestInferSendsNoMoreThanDemanded checks that no more responses of a stream are sent than were
// demanded. The others are kept with their slots.
func TestInferSendsNoMoreThanDemanded(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	b.host.IsDecoupled = true
	b.mustAsk(1, processtest.Infer{Flags: ipc.InferStream, Demand: 2})
	send := b.host.Request(0).Send
	released := 0
	for range 10 {
		send(&infer.Response{Slot: onRelease(func() { released++ }), Outputs: []infer.Tensor{{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{1}}}})
	}
	if n := len(b.sent()); n != 2 || released != 2 {
		t.Errorf("%d responses were sent and %d slots released, want 2", n, released)
	}
	b.word(ipc.Demand, 1, 3)
	if n := len(b.sent()); n != 3 || released != 5 {
		t.Errorf("%d responses were sent and %d slots released, want 3 and 5", n, released)
	}
	send(&infer.Response{Empty: true, Final: true})
	if n := len(b.sent()); n != 0 {
		t.Errorf("%d responses were sent beyond the demand", n)
	}
	b.word(ipc.Demand, 1, 5) // the end of the stream needs no demand
	list := b.sent()
	if n := len(list); n != 6 || released != 10 {
		t.Fatalf("%d responses were sent and %d slots released, want 6 and 10", n, released)
	}
	if last := list[5].Body; last.Flags != ipc.FlagFinal || len(last.Outputs) != 0 {
		t.Errorf("got the last response %+v, want a final flag alone", last)
	}
	if b.requests.find(1) != nil {
		t.Errorf("the inference is under way after its last response")
	}
	b.word(ipc.Demand, 1, 5) // crosses with the end and has no effect
	b.host.Forget(b.host.Taken())
}

// TestInferStopSendsCancelledAndDropsForgotten checks that responses to a cancelled request are
// sent and responses to a forgotten one are dropped. Both release their slots.
func TestInferStopSendsCancelledAndDropsForgotten(t *testing.T) {
	for name, stop := range map[string]uint32{"cancelled": ipc.StopCancel, "forgotten": ipc.StopForget} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.host.IsDecoupled = true
			b.mustAsk(1, processtest.Infer{Flags: ipc.InferStream, Demand: 1})
			c := b.host.Request(0)
			released := 0
			response := func() *infer.Response {
				return &infer.Response{Slot: onRelease(func() { released++ }), Outputs: []infer.Tensor{{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{1}}}}
			}
			c.Send(response())
			c.Send(response())
			if c.Context.Err() != nil {
				t.Errorf("the request is cancelled too early")
			}
			b.word(ipc.StopInfer, 1, stop)
			if c.Context.Err() == nil {
				t.Errorf("the request is not cancelled")
			}
			c.Send(response())
			c.Send(&infer.Response{Err: &infer.Error{Code: infer.Cancelled}, Final: true})
			b.word(ipc.Demand, 1, 100)
			want := 4
			if stop == ipc.StopForget {
				want = 1
			}
			if n := len(b.sent()); n != want || released != 3 {
				t.Errorf("%d responses were sent and %d slots released, want %d and 3", n, released, want)
			}
			b.host.Forget(b.host.Taken())
		})
	}
}

// TestInferRefusesOneRequestTooMany checks that a request beyond the limit is refused without
// affecting the others, and that invalid numbers end the life.
func TestInferRefusesOneRequestTooMany(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	for i := range uint64(maxRequests) {
		b.mustAsk(i+1, processtest.Infer{})
	}
	b.mustAsk(maxRequests+1, processtest.Infer{Inputs: []ipc.Descriptor{processtest.InArena(1, 0, 8192)}})
	b.want(maxRequests+1, infer.Unavailable, "a model may have 16384 inference requests of its own under way")
	if err := b.ask(0, processtest.Infer{}); processtest.RuleOf(err) != "handle" {
		t.Errorf("number 0: got error %v, want one of rule handle", err)
	}
	if err := b.ask(5, processtest.Infer{}); processtest.RuleOf(err) != "handle" {
		t.Errorf("number in use: got error %v, want one of rule handle", err)
	}
	if err := b.ask(maxRequests+2, processtest.Infer{Batch: 1}); processtest.RuleOf(err) != "handle" {
		t.Errorf("batch of the future: got error %v, want one of rule handle", err)
	}
	if err := b.ask(maxRequests+2, processtest.Infer{Inputs: []ipc.Descriptor{processtest.InArena(5, 0, 1)}}); processtest.RuleOf(err) != "name" {
		t.Errorf("unknown name: got error %v, want one of rule name", err)
	}
	b.host.Request(0).Send(&infer.Response{Final: true})
	b.want(1, 0, "")
	b.host.Forget(1)
	b.mustAsk(maxRequests+2, processtest.Infer{})
}

// TestInferCopiesAreBounded checks that a model that floods the server with inputs is refused
// before it uses up other models' memory.
func TestInferCopiesAreBounded(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	half := processtest.InArena(1, 0, processtest.Arena/2)
	for i := range uint64(2) {
		b.mustAsk(i+1, processtest.Infer{Inputs: []ipc.Descriptor{processtest.InArena(1, 0, 300<<10)}})
	}
	b.mustAsk(3, processtest.Infer{Inputs: []ipc.Descriptor{half}})
	a := b.sent()
	if len(a) != 1 || a[0].Number != 3 || infer.Code(a[0].Body.Code) != infer.Unavailable {
		t.Fatalf("got frames %+v, want an error", a)
	}
	if n := b.Returned(t); n != 3 {
		t.Errorf("%d tickets went back, want 3", n)
	}
}
