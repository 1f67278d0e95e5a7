package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process/bls"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/mapping"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
)

// life is one stub process and everything that belongs to it: one type for each of its
// responsibilities, and the parts that they share.
type life struct {
	in      *Instance
	channel *ipc.Channel
	loans   *shm.Loans      // of blocks that the process may read
	quota   *quota          // of the memory that the server holds for the process
	encoder *frames.Encoder // of frames to the process
	decoder *frames.Decoder // of frames from the process; guarded by the channel's receive lock

	handshake
	inFlight
	readiness readiness
	bls       *bls.Requests
	calls     *hostcalls.Calls
	mapped    *mapping.Table     // regions of clients
	lent      *cudaipc.Lent      // device memory lent by the process
	announced *cudaipc.Announced // device memory announced to the process
	blamed    bool               // a client has caused its end; used by its own goroutine alone
	ending
	serial uint32 // of its model, from 1

	response ipc.ResponseBody // reused; guarded by the receive lock
	logLimit output.Limit     // of LOG; guarded by the receive lock
}

// errNeverReady marks the loss of a stub that never became ready.
var errNeverReady = errors.New("process did not become ready")

// runOnce runs one life: start, handshake, serve, reap. It calls up when the stub is ready.
func (in *Instance) runOnce(ctx context.Context, up func()) error {
	var l *life
	err := panics.Run(in.log, panics.Life, func() (err error) {
		l, err = in.take(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	in.noteProcess(l)
	err = panics.Run(in.log, panics.Life, func() error { return l.blame(l.run(ctx, up)) })
	panics.Guard(in.log, panics.Life, func() { l.end(err) }, func(error) { l.drop() })()
	return err
}

// run runs a life that has begun, and returns the reason for its end.
func (l *life) run(ctx context.Context, up func()) error {
	in := l.in
	if err := l.initialize(ctx); err != nil {
		if errors.Is(err, errStopped) {
			return err
		}
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	l.setUp()
	in.current.Store(l)
	l.serves = true
	l.serving.Add(1)
	if in.doomed.Load() { // doom may have missed this life
		l.kill()
	}
	in.asks.Store(l.asks)
	in.model.supervisor.metrics.StubStarted(in.model.env.Name)
	// The scheduler may submit a batch at once.
	in.available()
	up()
	return l.serve(ctx)
}

// take returns the life that has completed the model's config, or begins one.
func (in *Instance) take(ctx context.Context) (*life, error) {
	if l := in.primed; l != nil {
		in.primed = nil
		return l, nil
	}
	return in.begin(ctx)
}

// begin creates a channel and starts a process, unless ctx ends first. The caller calls end.
func (in *Instance) begin(ctx context.Context) (*life, error) {
	s, settings := in.model.supervisor, in.model.settings
	in.model.mu.Lock()
	in.model.lives++
	number := in.model.lives
	in.model.mu.Unlock()
	var l *life
	config := ipc.Config{
		Life: number, Backing: settings.Backing(&s.named), MaxArena: settings.MaxBytes, FreeArena: settings.DefaultBytes,
		Linger: func() time.Duration {
			if l.hasBatch() && in.await.worthwhile(settings.Spin) {
				return settings.Spin
			}
			return 0
		},
		Lingered: in.await.spun,
		Broken:   func(err error) { l.fail(err) },
		Spilled:  func(n int64) func() { return l.spilled(n) },
		Log:      in.log,
	}
	quota := newQuota(in)
	quota.chargeArena(&config)
	channel, err := ipc.New(config)
	if err != nil {
		quota.holder.Leave()
		return nil, &frames.Shortage{Client: infer.Errorf(infer.Internal, "Unable to initialize shared memory key '%s' to requested size (%d bytes). If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. %s Error: %v",
			in.name, settings.DefaultBytes, in.model.program.Text(LeastMemory, in.name), err), Reason: err}
	}
	loans := &shm.Loans{Kept: quota.keeps}
	l = &life{
		in: in, channel: channel, loans: loans, quota: quota,
		encoder: frames.NewEncoder(channel, s.requests, loans), decoder: frames.NewDecoder(channel, loans, quota.heap),
		logLimit: output.NewLimit(s.limits.Output), serial: number,
	}
	l.calls = hostcalls.New(hostcalls.Config{
		Host: in.model.env.Host, Metrics: s.metrics.Custom(in.model.env.Name), Encoder: l.encoder, Responses: in.model.env.Responses,
		Imported: in.model.env.Imported, Traced: l.tracedBy,
		Heap: quota.heap, Fail: l.fail, Limits: s.limits.Calls, Log: in.log,
	})
	l.encoder.MayLend, l.encoder.MayKeep = quota.mayLend, quota.mayKeep
	l.newDevices()
	l.handshake.begin(quota.heap)
	l.inFlight.begin(in, l, channel)
	l.ending.begin()
	l.bls = l.newBLS()
	files := Files{Peer: channel.Peer()}
	defer files.close()
	begun := false
	if err := l.newMapped(&files); err != nil {
		quota.holder.Leave()
		channel.Close()
		l.calls.Close(false)
		return nil, err
	}
	defer func() {
		if begun {
			return
		}
		quota.holder.Leave()
		l.mapped.Close()
		l.closeDevices()
		channel.Close()
		l.calls.Close(false)
	}()
	if files.Requests, err = s.requestsFile(); err != nil {
		return nil, err
	}
	var joined bool
	if l.host, joined, err = in.findHost(ctx, &files); err != nil {
		return nil, err
	}
	begun = true
	panics.Go(in.log, panics.Life, func() {
		defer close(l.read)
		l.readErr = panics.Run(in.log, panics.Life, func() error { return l.channel.Run(l.handle) })
	}, nil)
	// The process waits for its first request before it imports the model, so that all of its
	// threads inherit the cores.
	if !joined {
		if err := placement.Pin(l.process.PID(), in.cores); err != nil {
			l.fail(err)
		}
	}
	return l, nil
}

// serve returns when the life must end. An error is the reason; errStopped means that ctx has ended
// and the stub has finalized, or was not given the time to.
func (l *life) serve(ctx context.Context) error {
	select {
	case err := <-l.failed:
		return err
	case <-l.read:
		return l.readerEnded(nil)
	case <-l.exited:
		// A child of the model may hold the stub's end of the bell open.
		return l.died()
	case <-ctx.Done():
	}
	l.in.note(PhaseStopping, nil)
	// The stub completes its work; Close limits the time.
	select {
	case <-l.emptied():
	case <-l.hasty:
	case <-l.failed: //nolint:errcheck // the end is wanted, however it comes
		return errStopped
	case <-l.read:
		return errStopped
	case <-l.exited:
		return errStopped
	}
	l.finalize()
	return errStopped
}

// look records the stub's descendants while they can still be found.
func (l *life) look() {
	select {
	case <-l.exited: // its pid may be reused by now
	default:
		l.in.model.supervisor.children.Look(l.process)
	}
}

// finalize tells the stub to finalize and waits for it within the limit.
func (l *life) finalize() {
	l.look()
	if l.joins != nil && l.told.Load() != toldInitialize {
		return // nothing to finalize, and the process would not say that it is over
	}
	if err := l.channel.Send(ipc.Finalize, 0, nil); err != nil {
		return
	}
	limit := panics.NewLimit(l.in.model.settings.FinalizeTimeout)
	defer limit.Stop()
	select {
	case <-l.exited:
	case <-l.detached(): // the others may run on
	case <-l.failed: //nolint:errcheck // the end is wanted, however it comes
	case <-limit.C:
		l.in.log.Warn().Stringer("limit", l.in.model.settings.FinalizeTimeout).Msg("finalize did not return in time, killing the process")
		var err error = &lateError{"finalize of " + l.in.name + " did not return in time"}
		l.fault.CompareAndSwap(nil, &err)
	}
}

// answered implements inFlightSession.
func (l *life) answered(lent *shm.Group) { l.loans.Answered(lent) }

// handle processes one frame of the stub. The caller holds the channel's receive lock. An error
// ends the life.
func (l *life) handle(f ipc.Frame) error {
	if !l.allows(f.Kind) {
		return ipc.Broken("kind", "%s came in phase %d", f.Kind, l.seen)
	}
	switch f.Kind {
	case ipc.Executed:
		return l.executed(f)
	case ipc.Response:
		return l.responded(f)
	case ipc.Released:
		if len(f.Body)%8 != 0 {
			return ipc.Broken("frame", "RELEASED has %d bytes, want a multiple of 8", len(f.Body))
		}
		return l.decoder.Return(f.Body)
	case ipc.Infer:
		return l.bls.Receive(f)
	case ipc.Demand, ipc.StopInfer:
		return l.bls.Control(f)
	case ipc.ReadyAnswer:
		return l.isReady(f)
	case ipc.Name:
		return l.decoder.AddName(f.ID, f.Body)
	case ipc.Log:
		return l.logged(f)
	case ipc.Call:
		return l.calls.Receive(f)
	case ipc.Metric:
		return l.calls.Measure(f)
	case ipc.Mapped:
		return l.mapped.Receive(f)
	case ipc.Lend, ipc.Unlend:
		return l.lent.Receive(f)
	}
	return l.handshake.receive(f)
}

// blsSession is the view that BLS requests have of a life.
type blsSession struct{ *life }

// newBLS creates the BLS requests of a life.
func (l *life) newBLS() *bls.Requests {
	m := l.in.model
	return bls.New(bls.Config{
		Model: m.env.Name, Version: m.env.Version, Host: m.env.Host,
		OneResponse: func(model string) string { return m.program.Text(OneResponseWanted, model) },
		Channel:     l.channel, Decoder: l.decoder, Encoder: l.encoder,
		Pool: m.supervisor.requests, Holder: l.quota.holder, TakeBlocks: l.quota.takeBlocks, Devices: m.supervisor.copier != nil, Log: l.in.log,
	}, blsSession{l})
}

// Handle implements bls.Session.
func (s blsSession) Handle(f ipc.Frame) error { return s.handle(f) }

// Fail implements bls.Session.
func (s blsSession) Fail(err error) { s.fail(err) }

// Execution implements bls.Session.
func (s blsSession) Execution(batch uint64) (requests []*infer.Request, executing bool, err error) {
	l := s.life
	if batch != 0 {
		l.in.await.thought(l.channel.Posted() - max(l.bls.Informed(), l.handed.Load()))
	}
	tasks, executing, err := l.tasksOf(batch)
	if err != nil {
		return nil, false, err
	}
	requests = make([]*infer.Request, len(tasks)) // bound: the batch
	for i, task := range tasks {
		requests[i] = task.Request
	}
	return requests, executing, nil
}

// Traced implements bls.Session.
func (s blsSession) Traced(text []byte) *infer.Request { return s.tracedBy(text) }
