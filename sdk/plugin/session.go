package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// settings are the fields of AUTO_COMPLETE and INITIALIZE that ipc.PluginModel lacks.
type settings struct {
	Names           []string `msgpack:"names"`
	Inputs          int      `msgpack:"inputs"`
	Outputs         int      `msgpack:"outputs"`
	Decoupled       bool     `msgpack:"decoupled"`
	Log             levels   `msgpack:"log"`
	Spin            int64    `msgpack:"spin_us"`
	Default         int64    `msgpack:"default_bytes"`
	Growth          int64    `msgpack:"growth_bytes"`
	Max             int64    `msgpack:"max_bytes"`
	WindowResponses int      `msgpack:"window_responses"`
	WindowBytes     int64    `msgpack:"window_bytes"`
}

// session is one life of a plugin.
type session struct {
	initialize sdk.New
	peer       *peer.Peer
	logs       *logs
	own        zerolog.Logger // of faults of the backend
	box        *peer.Box      // EXECUTE, INITIALIZE, FINALIZE, AUTO_COMPLETE
	standby    *standby
	answerSpin peer.Spin // of waits for answers of the server; used by the goroutine that reads

	// Set by AUTO_COMPLETE or INITIALIZE, whichever is first, before the backend is opened.
	arena   *peer.Arena
	backend *engine.Backend
	opened  *engine.Model
	model   ipc.PluginModel

	// Set by INITIALIZE, before the instance is made.
	told      atomic.Bool
	names     *names
	decoupled bool
	batches   bool // inputs begin with the batch's dimension
	window    engine.WindowLimits
	instance  *engine.Instance
	started   chan struct{} // closed when INITIALIZED has been sent
	running   atomic.Bool   // from then on until FINALIZE: other models may be called

	up         bool                                 // INITIALIZED has been sent; of the instance's goroutine
	current    *execution                           // the last that was begun; of the instance's goroutine
	done       func(*backend.Batch, backend.Report) // of each batch
	parsed     ipc.RequestBody                      // of the instance's goroutine
	open       open
	cancelled  cancelled
	inferences inferences
	calls      calls
	ballast    []byte
}

// settleGrace is how long after FINALIZE the plugin waits for requests that have no response or are
// not released. The server allows more time before it kills the process.
const settleGrace = 500 * time.Millisecond

func newSession(initialize sdk.New) *session {
	return &session{initialize: initialize, box: peer.NewBox(), started: make(chan struct{}), done: done}
}

// attach connects to the server.
func (s *session) attach(fds *inherited) error {
	limitMemory()
	s.ballast = make([]byte, ballastBytes)
	s.logs = &logs{}
	s.own = zerolog.New(s.logs)
	var err error
	if s.peer, err = peer.Attach(fds.files, s.route); err != nil {
		return err
	}
	s.logs.peer = s.peer
	s.logs.settle(levels{Info: true, Warning: true, Error: true})
	s.standby = newStandby(s.peer, s.inferences.none, s.openRequests)
	panics.Go(s.own, panics.Life, s.standby.run, nil)
	executable, _ := os.Executable()
	return s.sendMap(ipc.Hello, uint64(os.Getpid()), map[string]any{"python": "", "numpy": "", "executable": executable, "prefix": ""})
}

func (s *session) sendMap(kind ipc.Kind, id uint64, body any) error {
	encoded, err := msgpack.Marshal(body)
	if err != nil {
		return err
	}
	return s.peer.Send(kind, id, encoded)
}

// run serves until FINALIZE and returns the exit code.
func (s *session) run() (int, error) {
	m, err := s.expect(ipc.AutoComplete, ipc.Initialize, ipc.Finalize)
	if err != nil {
		return 0, err
	}
	if m.Kind == ipc.AutoComplete {
		if !s.complete(m) {
			return exitNotStarted, s.peer.Err()
		}
		if m, err = s.expect(ipc.Initialize, ipc.Finalize); err != nil {
			return 0, err
		}
	}
	if m.Kind == ipc.Initialize {
		if !s.start(m) {
			return exitNotStarted, s.peer.Err()
		}
		select {
		case <-s.instance.Ended():
		case <-s.peer.Done():
		}
		if err := s.peer.Err(); err != nil {
			return 0, err
		}
	}
	if s.opened != nil {
		s.opened.Close()
	}
	if s.backend != nil {
		s.backend.Close()
	}
	if m.Kind == ipc.Initialize {
		return 0, s.sendMap(ipc.Finalized, 0, map[string]any{"error": ""})
	}
	return 0, nil
}

// expect waits for a message of one of these kinds.
func (s *session) expect(kinds ...ipc.Kind) (peer.Message, error) {
	for {
		m, err := s.peer.Receive(s.box, nil, 0)
		if err != nil {
			return m, err
		}
		for _, kind := range kinds {
			if m.Kind == kind {
				return m, nil
			}
		}
		s.unexpected(m)
	}
}

// unexpected skips a frame that does not belong here; a batch gets an error.
func (s *session) unexpected(m peer.Message) {
	when := "before"
	if s.told.Load() {
		when = "after"
	}
	text := fmt.Sprintf("a frame %s came %s INITIALIZE", m.Kind, when)
	if m.Kind == ipc.Execute {
		s.refuse(m.ID, text)
		return
	}
	s.logs.complain(0, text)
}

// route implements peer.Route.
func (s *session) route(m peer.Message) *peer.Box {
	err := error(nil)
	switch m.Kind {
	case ipc.Execute, ipc.Initialize, ipc.Finalize, ipc.AutoComplete:
		return s.box
	case ipc.Result:
		return s.calls.box(m.ID)
	case ipc.LogSettings:
		var wanted levels
		if err = decode(m, &wanted); err == nil {
			s.logs.settle(wanted)
		}
	case ipc.Map:
		err = s.refuseMap(m.ID, ipc.MapRefused)
	case ipc.Unmap:
		err = s.refuseMap(m.ID, ipc.MapEnded)
	case ipc.Allocation, ipc.Freed:
		// Device memory is not used here.
	default:
		err = s.routeTold(m)
	}
	if err != nil {
		s.logs.complain(0, fmt.Sprintf("a frame %s is not understood: %v", m.Kind, err))
	}
	return nil
}

// routeTold is route for frames that follow INITIALIZE.
func (s *session) routeTold(m peer.Message) error {
	if !s.told.Load() {
		return errors.New("it came before INITIALIZE")
	}
	switch m.Kind {
	case ipc.Name:
		return s.names.learn(m)
	case ipc.Cancel:
		n, err := ipc.ParseHandles(m.Body)
		if err == nil {
			err = m.Lost
		}
		for i := 0; err == nil && i < n; i++ {
			s.cancelled.add(ipc.Ticket(m.Body, i))
		}
		return detail(err)
	case ipc.Credit:
		t := s.open.get(m.ID)
		if t == nil {
			return nil
		}
		responses, _, err := ipc.ParseCredit(m.Body)
		if err != nil {
			// Its value is unknown, and the author might wait for it forever.
			t.giveUp(detail(err))
			return detail(err)
		}
		t.window.credit(responses)
	case ipc.InferResponse:
		return s.inferences.arrived(s, m)
	case ipc.ReadyQuestion:
		panics.Go(s.own, panics.Life, func() { s.sayReady(m.ID) }, nil)
	default:
		return errors.New("unexpected kind of frame")
	}
	return nil
}

// refuseMap answers MAP and UNMAP. The server copies inputs in clients' regions for plugins.
func (s *session) refuseMap(region uint64, status uint32) error {
	return s.peer.Fill(ipc.Mapped, region, ipc.MappedSize, func(body []byte) { ipc.PutWord(body, status) })
}

// sayReady answers a readiness probe, concurrently with Execute.
func (s *session) sayReady(probe uint64) {
	text := ""
	if err := s.instance.Ready(context.Background()); err != nil {
		text = err.Error()
	}
	_ = s.sendMap(ipc.ReadyAnswer, probe, map[string]any{"ready": text == "", "error": text})
}

// decode decodes a msgpack body.
func decode(m peer.Message, into any) error {
	if m.Lost != nil {
		return m.Lost
	}
	return msgpack.Unmarshal(m.Body, into)
}

// detail returns an error without package ipc's words about stubs.
func detail(err error) error {
	var broken *ipc.ProtocolError
	if errors.As(err, &broken) {
		return errors.New(broken.Detail)
	}
	return err
}

// complete asks the backend to complete the config and sends the outcome.
func (s *session) complete(m peer.Message) bool {
	var answer struct {
		Error  string `msgpack:"error"`
		Config string `msgpack:"config"`
	}
	config, err := s.opening(m, &settings{})
	if err == nil {
		var made []byte
		made, err = s.opened.Complete(context.Background(), []byte(config.Config))
		answer.Config = string(made)
	}
	if err != nil {
		answer.Error = sentence(err)
		s.logs.complain(0, answer.Error)
	}
	return s.sendMap(ipc.Completed, 0, &answer) == nil && err == nil
}

// sentence returns the text for clients of an error that has a text.
func sentence(err error) string {
	if text := infer.AsError(err).Message; text != "" {
		return text
	}
	return "the backend has failed without saying why"
}

// opening decodes the common part of AUTO_COMPLETE and INITIALIZE, and opens the backend with the
// first of them.
func (s *session) opening(m peer.Message, more *settings) (ipc.PluginModel, error) {
	var b ipc.PluginBackend
	var model ipc.PluginModel
	for _, into := range []any{&b, &model, more} {
		if err := decode(m, into); err != nil {
			return model, fmt.Errorf("%s is not understood: %w", m.Kind, err)
		}
	}
	s.logs.settle(more.Log)
	if s.backend != nil {
		return model, nil
	}
	spin := time.Duration(more.Spin) * time.Microsecond
	s.peer.SetSpin(peer.NewSpin(spin))
	s.answerSpin = peer.NewSpin(spin)
	s.arena = s.peer.OpenArena(peer.Sizes{Default: more.Default, Growth: more.Growth, Max: more.Max})
	s.calls.init(s)
	s.model = model
	s.window = engine.WindowLimits{Responses: more.WindowResponses, Bytes: more.WindowBytes}
	opened, err := engine.Open(s.initialize, engine.Environment{
		Name: b.Name, Directory: b.Directory, Settings: b.Settings, Message: b.Message,
		Log: s.logs.log, Enabled: s.logs.enabled, Own: s.own, Allocate: s.allocate, AnswersFirst: true,
		Later: s.later, Trace: traceOf, Activity: s.calls.activity, Window: s.window,
	})
	if err != nil {
		return model, err
	}
	s.backend = opened
	s.opened = opened.Model(engine.Version{
		Name: model.Name, Version: model.Version, Directory: model.Directory, Host: &host{s}, Metrics: &s.calls, Memory: s.calls.memory,
		Responses: s.calls.response,
	})
	return model, nil
}

// start creates the model and the instance and sends the outcome.
func (s *session) start(m peer.Message) bool {
	var answer struct {
		Error   string `msgpack:"error"`
		IsReady bool   `msgpack:"is_ready"`
	}
	err := s.starting(m)
	if err != nil {
		answer.Error = sentence(err)
		s.logs.complain(0, answer.Error)
	} else {
		answer.IsReady = s.instance.AsksReady()
	}
	s.running.Store(err == nil)
	if s.sendMap(ipc.Initialized, 0, &answer) != nil || err != nil {
		return false
	}
	close(s.started)
	return true
}

func (s *session) starting(m peer.Message) error {
	var more settings
	var at ipc.PluginInstance
	config, err := s.opening(m, &more)
	if err != nil {
		return err
	}
	if err := decode(m, &at); err != nil {
		return fmt.Errorf("INITIALIZE is not understood: %w", err)
	}
	parsed, err := engine.ParseConfig([]byte(config.Config))
	if err != nil {
		return err
	}
	s.names, s.decoupled, s.batches = newNames(s.peer, more.Names), more.Decoupled, parsed.GetMaxBatchSize() > 0
	s.told.Store(true)
	ctx := context.Background()
	if err := s.opened.Start(ctx, parsed, []byte(config.Config)); err != nil {
		return err
	}
	spec := engine.InstanceSpec{
		Name: at.Name, Kind: at.Kind, Device: at.Device, Profiles: at.Profiles, Passive: at.Passive, HostPolicy: at.HostPolicy, Next: s.next,
	}
	for _, d := range at.Secondary {
		spec.SecondaryDevices = append(spec.SecondaryDevices, sdk.SecondaryDevice{Kind: d.Kind, Device: d.Device})
	}
	s.instance, err = s.opened.Instance(ctx, spec)
	return err
}

// When memory comes back, nothing wakes a sender that waits for it. It checks at these intervals,
// doubled from the first to the second.
const (
	memoryLookFirst = 100 * time.Microsecond
	memoryLookLast  = 10 * time.Millisecond
)

// allocate lends memory for an output. For a decoupled model it waits for memory while clients
// still read responses, whose memory comes back. Any other problem is an error.
func (s *session) allocate(n int64) ([]byte, infer.Memory, error) {
	block, err := s.arena.Take(n)
	lent := true
	for wait := memoryLookFirst; s.decoupled && lent && exhausted(err); wait = min(2*wait, memoryLookLast) {
		if lent = s.arena.Lent(); lent {
			select {
			case <-s.peer.Done():
				return nil, nil, infer.Errorf(infer.Internal, "%s", err.Error())
			case <-time.After(wait):
			}
		}
		// With nothing lent, one more try decides: the last block may have come back since the previous
		// try.
		block, err = s.arena.Take(n)
	}
	if err != nil {
		return nil, nil, infer.Errorf(infer.Internal, "%s", err.Error())
	}
	return block.Bytes(), block, nil
}

// openRequests returns the number of requests that Execute has left open.
func (s *session) openRequests() int {
	select {
	case <-s.started:
		return s.instance.Open()
	default:
		return 0
	}
}

// later implements engine.Environment.Later: EXECUTED waits for the author's releases, responses do
// not.
func (s *session) later() {
	e := s.current
	e.mu.Lock()
	e.taken = true
	e.mu.Unlock()
}

// next implements engine.InstanceSpec.Next: it reads until there is a batch to execute. It returns
// nil at FINALIZE and when the connection has ended.
func (s *session) next() (b *backend.Batch, at int64) {
	// The times are exact: the wait begins when the responses were published, and the author's Execute
	// is called when the frame is seen.
	var since int64
	if !s.up {
		<-s.started
		s.up = true
	}
	if s.current != nil {
		// A batch is answered before the next one begins.
		if answered := s.current.pending(); answered != nil {
			select {
			case <-answered:
			case <-s.peer.Done():
				return nil, 0
			}
		}
		since = s.current.answered
		s.current = nil
		s.standby.end()
	}
	for {
		m, err := s.peer.Receive(s.box, nil, since)
		if err != nil {
			return nil, 0
		}
		since = 0
		switch m.Kind {
		case ipc.Execute:
			if m.Ahead && !s.peer.BeginAhead(m.ID) {
				s.skip(m)
				continue
			}
			if s.current = s.begin(m); s.current != nil {
				s.standby.begin()
				return &s.current.batch, s.current.seen(m.Seen)
			}
		case ipc.Finalize:
			s.running.Store(false)
			// The server waits no longer. An author may be releasing answered requests.
			panics.AfterFunc(s.own, panics.Life, settleGrace, s.instance.Hurry, nil)
			return nil, 0
		default:
			s.unexpected(m)
		}
	}
}
