package process

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// fakeHost is the registry of a life without one: it keeps what it is given.
type fakeHost struct {
	decoupled, asks, unready bool
	unknown, refuse          error

	mu    sync.Mutex
	calls []call
}

type call struct {
	ctx     context.Context
	request *infer.Request
	send    infer.Sender
	ended   *atomic.Bool // the last response has been sent
}

func (h *fakeHost) Submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	if h.refuse != nil {
		return h.refuse
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := new(atomic.Bool)
	h.calls = append(h.calls, call{ctx, r, func(response *infer.Response) {
		ended.Store(response.Final)
		send(response)
	}, ended})
	return nil
}

func (h *fakeHost) Decoupled(string, int64) (decoupled, asks bool, err error) {
	return h.decoupled, h.asks, h.unknown
}

func (h *fakeHost) ModelReady(context.Context, string, int64) (bool, error) { return !h.unready, nil }

func (h *fakeHost) Load(context.Context, string, string, map[string][]byte) error { return nil }
func (h *fakeHost) Unload(context.Context, string, bool) error                    { return nil }

// taken returns how many calls have come.
func (h *fakeHost) taken() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

func (h *fakeHost) call(i int) call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[i]
}

// bench is a life without a process whose model calls others.
type bench struct {
	*standIn
	life *life
	host *fakeHost
	read uint64 // position in the down ring
}

func newBench(t testing.TB, backing shm.Backing) *bench {
	t.Helper()
	s := newStandIn(t, backing)
	return s.newBench()
}

func (s *standIn) newBench() *bench {
	b := &bench{standIn: s, life: s.newLife(), host: &fakeHost{}}
	b.life.seen = phaseInitialized
	b.life.bls.host, b.life.bls.version = b.host, 3
	var word [8]byte
	if _, err := s.peer.Down.ReadAt(word[:], shm.TailOffset); err != nil {
		s.t.Fatal(err)
	}
	b.read = binary.LittleEndian.Uint64(word[:])
	return b
}

// settled ends the life and wants everything back where it was.
func (b *bench) settled() {
	b.t.Helper()
	b.life.bls.close()
	for i := range b.host.taken() { // what is under way ends
		c := b.host.call(i)
		if c.ended.Load() {
			continue
		}
		if c.ctx.Err() == nil {
			b.t.Errorf("call %d is not cancelled although the life has ended", i)
		}
		c.send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "")))
	}
	b.life.loans.Close()
	if n := len(b.life.bls.all); n != 0 {
		b.t.Errorf("%d BLS requests are in flight, want none", n)
	}
	if n := b.life.bls.copied; n != 0 {
		b.t.Errorf("%d bytes of copies are counted, want none", n)
	}
	if n := b.channel.Arena().Outstanding(); n != 0 {
		b.t.Errorf("%d descriptors are outstanding, want none", n)
	}
	if n := b.pool.Stats().Blocks; n != 0 {
		b.t.Errorf("%d blocks of requests are in use, want none", n)
	}
}

// answered is an INFER_RESPONSE as the stub reads it.
type answered struct {
	number  uint64
	body    ipc.ResponseBody
	outputs [][]byte
}

// sent takes the frames off the down ring, NAMEs apart.
func (b *bench) sent() (list []answered) {
	b.t.Helper()
	le := binary.LittleEndian
	word := make([]byte, 8)
	if _, err := b.peer.Down.ReadAt(word, shm.TailOffset); err != nil {
		b.t.Fatal(err)
	}
	for tail := le.Uint64(word); b.read < tail; {
		at := shm.RingOffset + int64(b.read%shm.RingSize)
		head := make([]byte, ipc.HeaderSize)
		if _, err := b.peer.Down.ReadAt(head, at); err != nil {
			b.t.Fatal(err)
		}
		size := le.Uint32(head)
		frame := make([]byte, size)
		if _, err := b.peer.Down.ReadAt(frame, at); err != nil {
			b.t.Fatal(err)
		}
		b.read += uint64(ipc.Align8(int(size)))
		if kind := ipc.Kind(le.Uint16(head[4:])); kind == ipc.InferResponse {
			a := answered{number: le.Uint64(head[16:])}
			body := frame[ipc.HeaderSize:]
			if _, err := ipc.ParseResponse(body, &a.body); err != nil {
				b.t.Fatal(err)
			}
			for i := range a.body.Outputs {
				d := &a.body.Outputs[i]
				switch d.Region {
				case ipc.InFrame:
					bytes, err := d.InlineBytes(body)
					if err != nil {
						b.t.Fatal(err)
					}
					a.outputs = append(a.outputs, bytes)
				case ipc.InRequests:
					block, bytes, err := b.life.loans.Borrow(shm.Ticket(d.Ticket), d.Offset, d.Length)
					if err != nil {
						b.t.Fatal(err)
					}
					a.outputs = append(a.outputs, append([]byte(nil), bytes...))
					block.Release()
				}
			}
			list = append(list, a)
		}
	}
	le.PutUint64(word, b.read)
	if _, err := b.peer.Up.WriteAt(word, shm.HeadOffset); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// want wants one frame to have been sent: an error with this text, or none.
func (b *bench) want(number uint64, code infer.Code, text string) answered {
	b.t.Helper()
	list := b.sent()
	if len(list) != 1 || list[0].number != number {
		b.t.Fatalf("got frames %+v, want one for inference %d", list, number)
	}
	a := list[0]
	failed := a.body.Flags&ipc.FlagError != 0
	if failed != (text != "") || string(a.body.Error) != text || failed && infer.Code(a.body.Code) != code {
		b.t.Errorf("got flags %#x, code %d, error %q, want %d, %q", a.body.Flags, a.body.Code, a.body.Error, code, text)
	}
	return a
}

// inferBody makes the body of INFER.
type inferBody struct {
	batch      uint64
	flags      uint32
	demand     uint32
	model      string
	parameters string
	inputs     []ipc.Descriptor
}

func (i inferBody) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, i.batch)
	b = le.AppendUint64(b, math.MaxUint64) // the latest version
	b = le.AppendUint32(b, i.flags)
	b = le.AppendUint32(b, i.demand)
	b = le.AppendUint32(b, uint32(len(i.model)))
	b = le.AppendUint32(b, 0)
	b = append(b, i.model...)
	b = append(b, make([]byte, ipc.Align8(len(b))-len(b))...)
	h := ipc.RequestHead{Inputs: uint16(len(i.inputs)), Outputs: ipc.AllOutputs, Parameters: uint32(len(i.parameters))}
	at := len(b)
	b = append(b, make([]byte, ipc.RequestSize)...)
	h.Put(b[at:])
	for k := range i.inputs {
		at := len(b)
		b = append(b, make([]byte, i.inputs[k].Size())...)
		i.inputs[k].Put(b[at:])
	}
	b = append(b, i.parameters...)
	return append(b, make([]byte, ipc.Align8(len(b))-len(b))...)
}

// ask has the model make a request.
func (b *bench) ask(number uint64, i inferBody) error {
	if i.model == "" {
		i.model = "other"
	}
	return b.life.handle(ipc.Frame{Kind: ipc.Infer, ID: number, Body: i.encode()})
}

func (b *bench) mustAsk(number uint64, i inferBody) {
	b.t.Helper()
	if err := b.ask(number, i); err != nil {
		b.t.Fatalf("INFER %d: got error %v", number, err)
	}
}

func (b *bench) word(kind ipc.Kind, number uint64, n uint32) {
	b.t.Helper()
	body := binary.LittleEndian.AppendUint64(nil, uint64(n))
	if err := b.life.handle(ipc.Frame{Kind: kind, ID: number, Body: body}); err != nil {
		b.t.Fatal(err)
	}
}

// TestInferPassesInputsOn wants bytes from everywhere to reach the model that is called,
// and the stub's own to come back at once.
func TestInferPassesInputsOn(t *testing.T) {
	for kind, backing := range backings {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, backing)
			defer b.settled()
			block, err := b.pool.Alloc(8192)
			if err != nil {
				t.Fatal(err)
			}
			copy(block.Bytes(), pattern(8192, 1))
			ticket, _ := b.life.loans.Lend(block)
			block.Release()
			large := inArena(1, 0, 8192)
			small := inArena(2, 8192, 100)
			passed := ipc.Descriptor{
				Name: 3, Type: uint8(infer.FP32), Region: ipc.InRequests, Offset: block.Offset(), Length: 8192, Ticket: uint64(ticket), Shape: []int64{1, 2048},
			}
			b.mustAsk(1, inferBody{inputs: []ipc.Descriptor{large, small, passed}})
			if n := b.returned(); n != 2 {
				t.Errorf("%d tickets went back to the stub, want 2", n)
			}
			if b.host.taken() != 1 {
				t.Fatalf("%d requests came, want 1", b.host.taken())
			}
			r := b.host.call(0).request
			if r.Model != "other" || r.Version != infer.LatestVersion || len(r.Inputs) != 3 {
				t.Fatalf("got request %+v", r)
			}
			for i, n := range []int{8192, 100, 8192} {
				if len(r.Inputs[i].Data) != n || r.Inputs[i].Name != fmt.Sprintf("OUT%d", i) {
					t.Errorf("input %d: got %q of %d bytes, want %d", i, r.Inputs[i].Name, len(r.Inputs[i].Data), n)
				}
			}
			if r.Inputs[2].Memory != infer.Memory(block) || !bytes.Equal(r.Inputs[2].Data, pattern(8192, 1)) {
				t.Errorf("what is lent was copied, or changed")
			}
			if err := b.life.loans.Return(ticket); err != nil {
				t.Fatal(err)
			}
			b.host.call(0).send(&infer.Response{Final: true})
			b.want(1, 0, "")
			b.host.calls = nil
		})
	}
}

// TestInferRefusesWithoutAskingTheModel wants the texts of what is not even asked of the
// other model.
func TestInferRefusesWithoutAskingTheModel(t *testing.T) {
	const prefix = "Model other - Error when running inference: "
	unknown := infer.Errorf(infer.NotFound, "Request for unknown model: 'other' is not found")
	for name, test := range map[string]struct {
		host *fakeHost
		ask  inferBody
		code infer.Code
		want string
	}{
		"unknown":   {&fakeHost{unknown: unknown}, inferBody{}, infer.NotFound, prefix + unknown.Message},
		"unready":   {&fakeHost{asks: true, unready: true}, inferBody{}, infer.Unavailable, prefix + "Failed for execute the inference request. Model 'other' is not ready."},
		"decoupled": {&fakeHost{decoupled: true}, inferBody{}, infer.Unsupported, prefix + "Model other may send any number of responses."},
		"refused":   {&fakeHost{refuse: infer.Errorf(infer.InvalidArg, "no")}, inferBody{}, infer.InvalidArg, prefix + "no"},
		"huge int":  {&fakeHost{}, inferBody{parameters: `{"a":9223372036854775808}`}, infer.Internal, prefix + "Unsupported value type on parameters"},
		"unknown and huge int": {
			&fakeHost{unknown: unknown}, inferBody{parameters: `{"a":9223372036854775808}`}, infer.NotFound, prefix + unknown.Message,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.life.bls.host = test.host
			test.ask.inputs = []ipc.Descriptor{inArena(1, 0, 8192)}
			b.mustAsk(7, test.ask)
			testkit.Eventually(t, patience, func() bool { return b.life.bls.find(7) == nil })
			a := b.want(7, test.code, test.want)
			if a.body.Flags != failing {
				t.Errorf("got flags %#x, want an error that is final", a.body.Flags)
			}
		})
	}
}

// TestInferReturnsTheModelsResponses wants what the other model answers to arrive, and Triton's
// texts where it cannot.
func TestInferReturnsTheModelsResponses(t *testing.T) {
	large := infer.Tensor{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{5000}, Data: pattern(5000, 1)}
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
			b.mustAsk(1, inferBody{})
			r := test.response
			r.Final = true
			var released atomic.Int32
			r.Slot = onRelease(func() { released.Add(1) })
			b.host.call(0).send(&r)
			testkit.Eventually(t, patience, func() bool { return b.life.bls.find(1) == nil }) // much is copied aside
			if n := released.Load(); n != 1 {
				t.Errorf("the response was released %d times, want once", n)
			}
			b.host.calls = nil
			if name == "long text" { // through a block
				return
			}
			list := b.sent()
			if len(list) != 1 || list[0].body.Flags&ipc.FlagFinal == 0 {
				t.Fatalf("got frames %+v, want one that is final", list)
			}
			a := list[0]
			if !strings.HasPrefix(string(a.body.Error), test.want) || (test.want == "") != (len(a.body.Error) == 0) {
				t.Errorf("got error %q, want %q", a.body.Error, test.want)
			}
			if name == "no memory" && infer.Code(a.body.Code) != infer.Unavailable {
				t.Errorf("got code %d, want %d", a.body.Code, infer.Unavailable)
			}
			if test.want == "" && len(a.outputs) != len(r.Outputs) {
				t.Fatalf("got %d outputs, want %d", len(a.outputs), len(r.Outputs))
			}
			for i := range a.outputs {
				if !bytes.Equal(a.outputs[i], r.Outputs[i].Data) || b.life.encoder.Names().List()[a.body.Outputs[i].Name] != r.Outputs[i].Name {
					t.Errorf("output %d differs", i)
				}
			}
		})
	}
}

// onRelease is a memory that says when it is released.
type onRelease func()

func (onRelease) Retain()    {}
func (f onRelease) Release() { f() }

// TestInferSendsNoMoreThanDemanded wants no more responses of a stream than are demanded,
// and the others kept with their slots.
func TestInferSendsNoMoreThanDemanded(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	b.host.decoupled = true
	b.mustAsk(1, inferBody{flags: ipc.InferStream, demand: 2})
	send := b.host.call(0).send
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
	b.word(ipc.Demand, 1, 5) // the end of the stream needs none
	list := b.sent()
	if n := len(list); n != 6 || released != 10 {
		t.Fatalf("%d responses were sent and %d slots released, want 6 and 10", n, released)
	}
	if last := list[5].body; last.Flags != ipc.FlagFinal || len(last.Outputs) != 0 {
		t.Errorf("got the last response %+v, want a final flag alone", last)
	}
	if b.life.bls.find(1) != nil {
		t.Errorf("the inference is under way after its last response")
	}
	b.word(ipc.Demand, 1, 5) // crosses the end: nothing happens
	b.host.calls = nil
}

// TestInferStopSendsCancelledAndDropsForgotten wants a cancelled request's responses sent
// and a forgotten one's dropped, slots released.
func TestInferStopSendsCancelledAndDropsForgotten(t *testing.T) {
	for name, stop := range map[string]uint32{"cancelled": ipc.StopCancel, "forgotten": ipc.StopForget} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, shm.Memfd{})
			defer b.settled()
			b.host.decoupled = true
			b.mustAsk(1, inferBody{flags: ipc.InferStream, demand: 1})
			c := b.host.call(0)
			released := 0
			response := func() *infer.Response {
				return &infer.Response{Slot: onRelease(func() { released++ }), Outputs: []infer.Tensor{{Name: "OUT1", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{1}}}}
			}
			c.send(response())
			c.send(response())
			if c.ctx.Err() != nil {
				t.Errorf("the request is cancelled too early")
			}
			b.word(ipc.StopInfer, 1, stop)
			if c.ctx.Err() == nil {
				t.Errorf("the request is not cancelled")
			}
			c.send(response())
			c.send(&infer.Response{Err: &infer.Error{Code: infer.Cancelled}, Final: true})
			b.word(ipc.Demand, 1, 100)
			want := 4
			if stop == ipc.StopForget {
				want = 1
			}
			if n := len(b.sent()); n != want || released != 3 {
				t.Errorf("%d responses were sent and %d slots released, want %d and 3", n, released, want)
			}
			b.host.calls = nil
		})
	}
}

// TestInferRefusesOneRequestTooMany wants one request too many refused, without any harm to the
// others, and misuse of numbers to end the life.
func TestInferRefusesOneRequestTooMany(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	for i := range uint64(maxInferences) {
		b.mustAsk(i+1, inferBody{})
	}
	b.mustAsk(maxInferences+1, inferBody{inputs: []ipc.Descriptor{inArena(1, 0, 8192)}})
	b.want(maxInferences+1, infer.Unavailable, "a model may have 16384 inference requests of its own under way")
	if err := b.ask(0, inferBody{}); ruleOf(err) != "handle" {
		t.Errorf("number 0: got error %v, want one of rule handle", err)
	}
	if err := b.ask(5, inferBody{}); ruleOf(err) != "handle" {
		t.Errorf("number in use: got error %v, want one of rule handle", err)
	}
	if err := b.ask(maxInferences+2, inferBody{batch: 1}); ruleOf(err) != "handle" {
		t.Errorf("batch of the future: got error %v, want one of rule handle", err)
	}
	if err := b.ask(maxInferences+2, inferBody{inputs: []ipc.Descriptor{inArena(5, 0, 1)}}); ruleOf(err) != "name" {
		t.Errorf("unknown name: got error %v, want one of rule name", err)
	}
	b.host.call(0).send(&infer.Response{Final: true})
	b.want(1, 0, "")
	b.host.calls = b.host.calls[1:]
	b.mustAsk(maxInferences+2, inferBody{})
}

// TestInferIsCancelledWithItsCallers wants the execution named in which a request is made,
// and the request cancelled when the clients of that execution have all gone.
func TestInferIsCancelledWithItsCallers(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	l := b.life
	var tasks []*backend.Task
	var leave []context.CancelFunc
	outer := infer.NewCaller("client", 1, nil, false)
	for i := range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		leave = append(leave, cancel)
		tasks = append(tasks, &backend.Task{Context: ctx, Request: &infer.Request{ID: fmt.Sprint(i), Caller: outer}, Handle: 4<<32 | uint64(i)})
	}
	l.in.life, l.number = l, 5
	l.inside[0] = inside{batch: &backend.Batch{Tasks: tasks}, number: 4, handles: []uint64{4 << 32, 4<<32 | 1}}
	l.count = 1
	b.mustAsk(1, inferBody{batch: 4, flags: ipc.InferHolding})
	b.mustAsk(2, inferBody{batch: 3, flags: ipc.InferHolding}) // it has ended
	b.mustAsk(3, inferBody{})
	first, second, third := b.host.call(0), b.host.call(1), b.host.call(2)
	if c := first.request.Caller; c.Model != "m" || c.Version != 3 || len(c.Requests) != 2 || c.Requests[1] != tasks[1].Request || !c.Holding || first.request.Depth() != 2 {
		t.Errorf("got caller %+v at depth %d", c, first.request.Depth())
	}
	for _, c := range []call{second, third} {
		if len(c.request.Caller.Requests) != 0 || c.request.Caller.Holding || c.request.Depth() != 1 {
			t.Errorf("got caller %+v, want one without requests", c.request.Caller)
		}
	}
	b.mustAsk(5, inferBody{batch: 4, flags: ipc.InferHolding | ipc.InferGuess}) // by some other thread
	guessed := b.host.call(3)
	if c := guessed.request.Caller; len(c.Requests) != 2 || c.Holding || guessed.request.Depth() != 2 {
		t.Errorf("got caller %+v at depth %d of a guess", c, guessed.request.Depth())
	}
	for i, task := range tasks {
		if first.ctx.Err() != nil {
			t.Errorf("cancelled after %d of 2 clients have gone", i)
		}
		leave[i]()
		l.in.Cancel(task)
	}
	if first.ctx.Err() == nil || second.ctx.Err() != nil || third.ctx.Err() != nil || guessed.ctx.Err() != nil {
		t.Errorf("want the request of the batch cancelled, and no other")
	}
	// To clean up, a model may call others afterwards.
	b.mustAsk(4, inferBody{batch: 4, flags: ipc.InferHolding})
	if b.host.call(4).ctx.Err() != nil {
		t.Errorf("a request is cancelled that was made after the client had gone")
	}
	l.count = 0
}

// TestInferCopiesAreBounded wants a model that floods the server with inputs of
// its own refused before the memory of others is used up.
func TestInferCopiesAreBounded(t *testing.T) {
	b := newBench(t, shm.Memfd{})
	defer b.settled()
	half := inArena(1, 0, standInArena/2)
	for i := range uint64(2) {
		b.mustAsk(i+1, inferBody{inputs: []ipc.Descriptor{inArena(1, 0, 300<<10)}})
	}
	b.mustAsk(3, inferBody{inputs: []ipc.Descriptor{half}})
	a := b.sent()
	if len(a) != 1 || a[0].number != 3 || infer.Code(a[0].body.Code) != infer.Unavailable {
		t.Fatalf("got frames %+v, want an error", a)
	}
	if n := b.returned(); n != 3 {
		t.Errorf("%d tickets went back, want 3", n)
	}
}
