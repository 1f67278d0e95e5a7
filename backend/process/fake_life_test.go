package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/shm"
)

// fakeLife is a life without a process. The test writes the stub's frames.
type fakeLife struct {
	*processtest.Peer
	t       testing.TB
	channel *ipc.Channel
	peer    ipc.PeerFiles
	pool    *shm.Pool
	wanted  *wantedPlace // for OUT0 of each request
	begun   int64        // when answer's batch was given to the instance
}

func newFakeLife(t testing.TB, backing shm.Backing) *fakeLife {
	t.Helper()
	p := processtest.New(t, backing)
	return &fakeLife{Peer: p, t: t, channel: p.Channel, peer: p.Files, pool: p.Pool, wanted: newWantedPlace(t)}
}

// newLife starts a life with the golden frames' names.
func (s *fakeLife) newLife() *life {
	model := &Model{supervisor: &Supervisor{requests: s.pool}, settings: &Config{}, program: &FakeProgram{}, env: backend.Env{Name: "m", Host: &processtest.Host{}}}
	model.supervisor.limits.Bounds().SetDefaults()
	model.setShares()
	kept := s.NewLife()
	l := &life{
		in:      &Instance{model: model, name: "m_0", log: zerolog.Nop()},
		channel: s.channel, loans: kept.Loans, encoder: kept.Encoder, decoder: kept.Decoder,
		logLimit: output.NewLimit(output.Limits{}),
	}
	l.quota = newQuota(l.in)
	l.calls = hostcalls.New(hostcalls.Config{
		Host: model.env.Host, Metrics: metrics.New(metrics.Config{}).Custom("m"), Encoder: l.encoder, Fail: l.fail, Log: l.in.log,
	})
	l.handshake.begin(l.quota.heap)
	l.inFlight.begin(l.in, l, s.channel)
	l.bls = l.newBLS()
	if err := l.setNames([]string{"IN0"}, []string{"OUT0", "OUT1", "OUT2", "OUT3"}); err != nil {
		s.t.Fatal(err)
	}
	l.decoder.Mapped = func(_ *shm.Shared, writable bool) (uint32, bool) { return 5, writable }
	l.told.Store(toldInitialize)
	return l
}

// FakeProgram is a program with error texts only.
type FakeProgram struct{ Program }

// Capabilities implements Program.
func (*FakeProgram) Capabilities() ProgramCapabilities { return ProgramCapabilities{} }

// Text implements Program.
func (*FakeProgram) Text(fault Fault, subject string) string {
	switch fault {
	case ProcessLost:
		return fmt.Sprintf("Stub process '%s' is not healthy.", subject)
	case OneResponseWanted:
		return fmt.Sprintf("Model %s may send any number of responses.", subject)
	}
	return fmt.Sprintf("fault %d of '%s'", fault, subject)
}

// unhealthy returns the error of requests in flight in a lost process.
func unhealthy(instance string) *infer.Error {
	return infer.Errorf(infer.Internal, "Stub process '%s' is not healthy.", instance)
}

// answered is the result of a batch that a test has answered.
type answered struct {
	err       error // a protocol error ends the life
	responses []*infer.Response
	report    backend.Report
	reports   int
}

// answer executes a batch of three requests and lends its life a block. It then handles an EXECUTED
// frame with body, which gets the block's ticket and offset.
func (s *fakeLife) answer(l *life, body func(lent shm.Ticket, at uint64) []byte) answered {
	s.t.Helper()
	const number = 1
	l.seen = phaseInitialized
	l.setUp()
	l.in.current.Store(l)
	block, err := s.pool.Alloc(8192)
	if err != nil {
		s.t.Fatal(err)
	}
	ticket, ok := l.loans.Lend(block)
	if !ok {
		s.t.Fatal("a new table of loans lends nothing")
	}
	at := block.Offset()
	block.Release()
	v := answered{responses: make([]*infer.Response, 3)}
	batch := &backend.Batch{Done: func(_ *backend.Batch, report backend.Report) {
		v.report = report
		v.reports++
	}}
	for i := range v.responses {
		batch.Tasks = append(batch.Tasks, &backend.Task{Request: s.request(), Send: func(r *infer.Response) {
			if v.responses[i] != nil {
				s.t.Errorf("request %d was answered twice", i)
			}
			v.responses[i] = r
		}})
	}
	l.current[0] = batchInFlight{batch: batch, number: number, begin: s.begun, sent: s.begun}
	l.count = 1
	l.encoded.Store(number)
	v.err = l.handle(ipc.Frame{Kind: ipc.Executed, ID: number, Body: body(ticket, at)})
	for _, open := range l.endOpenLocked() { // requests without a response
		open.task.Send(infer.ErrorResponse(unhealthy("")))
	}
	return v
}

// request returns a request that wants OUT0 in a client's region.
func (s *fakeLife) request() *infer.Request {
	return &infer.Request{Places: []infer.Place{{Output: "OUT0", Memory: s.wanted}}}
}

// wantedPlace is a range of 70,000 bytes of a client's region, starting at byte 100.
type wantedPlace struct {
	shared *shm.Shared
	refs   atomic.Int64
}

func newWantedPlace(t testing.TB) *wantedPlace {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "region")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	w := &wantedPlace{shared: shm.NewShared(int(file.Fd()), 0, 1<<20)}
	w.refs.Store(1)
	return w
}

func (w *wantedPlace) Retain()                      { w.refs.Add(1) }
func (w *wantedPlace) Release()                     { w.refs.Add(-1) }
func (w *wantedPlace) Size() int64                  { return 70_000 }
func (w *wantedPlace) Shared() (*shm.Shared, int64) { return w.shared, 100 }
func (w *wantedPlace) Truncated() error             { return errors.New("truncated") }
func (w *wantedPlace) Copy(context.Context) ([]byte, infer.Memory, error) {
	return make([]byte, 70_000), nil, nil
}

// written returns a stub's report that it has written n bytes to the place.
func written(n int64) ipc.Descriptor {
	return ipc.Descriptor{Name: 1, Type: uint8(infer.Uint8), Region: ipc.InClient, Offset: 100, Length: uint64(n), Mapping: 5, Shape: []int64{n}}
}

// release ends a life whose batch was answered, and checks that nothing is left.
func (s *fakeLife) release(l *life, v answered) {
	s.t.Helper()
	var broken *ipc.ProtocolError
	if v.err != nil && !errors.As(v.err, &broken) {
		s.t.Errorf("got error %v, want a protocol error", v.err)
	}
	if want := v.err == nil; (v.reports == 1) != want {
		s.t.Errorf("batch is done %d times, with error %v", v.reports, v.err)
	}
	for i, r := range v.responses {
		switch {
		case (r != nil) != (v.err == nil):
			s.t.Errorf("request %d: got response %+v, with error %v", i, r, v.err)
		case r != nil && (!r.Final || r.Err != nil && len(r.Outputs)+len(r.Parameters) > 0):
			s.t.Errorf("request %d: got response %+v", i, r)
		}
		if r != nil {
			ReadAll(r)
			r.Release()
		}
	}
	if n := s.wanted.refs.Load(); n != 1 {
		s.t.Errorf("the place of an output has %d references, want one", n)
	}
	l.calls.Close(false)
	l.loans.Close()
	if n := s.channel.Arena().Outstanding(); n != 0 {
		s.t.Errorf("%d descriptors are outstanding, want none", n)
	}
	if n := l.decoder.Copied(); n != 0 {
		s.t.Errorf("%d bytes of copies are in use, want none", n)
	}
	if n := s.pool.Stats().Blocks; n != 0 {
		s.t.Errorf("%d blocks of requests are in use, want none", n)
	}
}

// ReadAll reads the whole response, as the server does.
func ReadAll(response *infer.Response) (sum byte) {
	for _, output := range response.Outputs {
		for _, b := range output.Data {
			sum += b
		}
	}
	return sum
}

// response is one response of a test's EXECUTED frame.
type response struct {
	request    uint64
	flags      uint32
	code       uint16
	parameters string
	text       string
	outputs    []ipc.Descriptor
}

// executedBody returns the body of an EXECUTED frame of batch 1.
func executedBody(tickets []shm.Ticket, responses ...response) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(responses)))
	b = append(b, make([]byte, 20)...)
	b = le.AppendUint32(b, uint32(len(tickets)))
	b = le.AppendUint32(b, 0)
	for _, t := range tickets {
		b = le.AppendUint64(b, uint64(t))
	}
	for _, r := range responses {
		b = le.AppendUint64(b, 1<<32|r.request)
		b = le.AppendUint32(b, r.flags)
		b = le.AppendUint16(b, uint16(len(r.outputs)))
		b = le.AppendUint16(b, r.code)
		b = le.AppendUint32(b, uint32(len(r.parameters)))
		b = le.AppendUint32(b, uint32(len(r.text)))
		b = le.AppendUint64(b, 0)
		for i := range r.outputs {
			at := len(b)
			b = append(b, make([]byte, r.outputs[i].Size())...)
			r.outputs[i].Put(b[at:])
		}
		b = append(b, r.parameters+r.text...)
		b = append(b, make([]byte, ipc.Align8(len(b))-len(b))...)
	}
	return b
}

// arenaDescriptors returns the number of descriptors in a valid EXECUTED body that lend bytes of
// the arena.
func arenaDescriptors(t testing.TB, body []byte) (n uint64) {
	t.Helper()
	e, err := ipc.ParseExecuted(body)
	if err != nil {
		t.Fatal(err)
	}
	var r ipc.ResponseBody
	for {
		ok, err := e.NextResponse(&r)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return n
		}
		for _, d := range r.Outputs {
			if d.Region == ipc.InArena {
				n++
			}
		}
	}
}
