package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nereid-serving/nereid/backend/process/bls"
	"github.com/nereid-serving/nereid/backend/process/cores"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/mapping"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
)

// life is one stub process and all that belongs to it: a type for each of its jobs, and
// what all of them use.
type life struct {
	in      *Instance
	channel *ipc.Channel
	loans   *shm.Loans      // of blocks that the process may read
	quota   *quota          // of the memory that the server holds for it
	encoder *frames.Encoder // of what it is sent; its lock is Instance.submit
	decoder *frames.Decoder // of what it says; guarded by the channel's receive lock

	handshake
	inFlight
	readiness readiness
	bls       *bls.Requests
	calls     *hostcalls.Calls
	mapped    *mapping.Table     // regions of clients
	lent      *cudaipc.Lent      // of devices' memory, by the process
	announced *cudaipc.Announced // of devices' memory, to the process
	blamed    bool               // a client has caused its end; its own goroutine's alone
	ending

	response ipc.ResponseBody // reused; guarded by the receive lock
	logLimit output.Limit     // of LOG; guarded by the receive lock
}

// errNeverReady marks the loss of a stub that had not become ready.
var errNeverReady = errors.New("process did not become ready")

// runOnce lives one life: start, handshake, serve, reap. up is called when the
// stub is ready.
func (in *Instance) runOnce(ctx context.Context, up func()) error {
	var l *life
	err := panics.Run(in.log, panics.Life, func() (err error) {
		l, err = in.take(ctx)
		return err
	})
	if err != nil {
		in.move(Lost, nil)
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	in.noteProcess(l)
	err = panics.Run(in.log, panics.Life, func() error { return l.blame(l.run(ctx, up)) })
	panics.Guard(in.log, panics.Life, func() { l.end(err) }, func(error) { l.drop(err) })()
	var exit *launch.ExitError
	if errors.As(err, &exit) { // what it printed last had not been read when its end was seen
		exit.Stderr = l.output.LastLines()
	}
	return err
}

// run lives a life that has begun, up to the reason for its end.
func (l *life) run(ctx context.Context, up func()) error {
	in := l.in
	if err := l.initialize(ctx); err != nil {
		if errors.Is(err, errStopped) {
			return err
		}
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	in.move(Ready, l)
	in.current.Store(l)
	if in.doomed.Load() { // doom may not have seen this life
		l.process.Kill()
	}
	in.asks.Store(l.asks)
	in.model.supervisor.metrics.StubStarted(in.model.env.Name)
	// The scheduler may hand a batch over at once.
	in.available()
	up()
	return l.serve(ctx)
}

// move changes state and life of an instance.
func (in *Instance) move(to State, l *life) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.moveLocked(to)
	in.life = l
}

// take returns a life that has completed the model's config, or begins one.
func (in *Instance) take(ctx context.Context) (*life, error) {
	if l := in.primed; l != nil {
		in.primed = nil
		return l, nil
	}
	return in.begin(ctx)
}

// begin makes a channel and starts a process, unless ctx ends before. Its end must be waited for by end.
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
	s.chargeArena(&config, quota.holder)
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
		logLimit: output.NewLimit(s.limits.Output),
	}
	l.calls = hostcalls.New(hostcalls.Config{
		Host: in.model.env.Host, Metrics: s.metrics.Custom(in.model.env.Name), Encoder: l.encoder, Responses: in.model.env.Responses,
		Imported: in.model.env.Imported, Traced: l.tracedBy,
		Heap: quota.heap, Fail: l.fail, Limits: s.limits.Calls, Log: in.log,
	})
	l.encoder.SetBounds(quota.mayLend, quota.mayKeep)
	l.newDevices()
	l.handshake.begin()
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
		if l.output != nil { // after the ends of the process, or it would wait for what these print
			files.close()
			l.output.Finish()
		}
		channel.Close()
		l.calls.Close(false)
	}()
	if files.Requests, err = s.requestsFile(); err == nil {
		l.output, files.Output, err = output.Open(in.log.With().Str("file", "output").Logger(), s.printed(settings), s.limits.Output)
	}
	if err != nil {
		return nil, err
	}
	l.output.Begin()
	if l.process, err = in.model.program.Start(ctx, in.name, &files); err != nil {
		files.close() // of the ends of the outputs, which are to be seen
		l.output.Finish()
		var exit *launch.ExitError
		if errors.As(err, &exit) {
			exit.Stderr = l.output.LastLines()
		}
		return nil, err
	}
	launch.Arm(files.Peer.Lifeline, l.process)
	begun = true
	panics.Go(in.log, panics.Life, func() {
		defer close(l.read)
		l.readErr = panics.Run(in.log, panics.Life, func() error { return l.channel.Run(l.handle) })
	}, nil)
	panics.Go(in.log, panics.Life, func() {
		defer close(l.exited)
		l.exit = &launch.ExitError{Code: -1}
		l.exit = l.process.Wait()
	}, nil)
	// It waits to be told what to import, so that runs where it should, threads
	// and all.
	if err := cores.Pin(l.process.PID(), in.cores); err != nil {
		l.fail(err)
	}
	return l, nil
}

// serve returns when the life must end: an error says why, errStopped that ctx
// has ended and the stub has finalized, or was not given the time to.
func (l *life) serve(ctx context.Context) error {
	select {
	case err := <-l.failed:
		return err
	case <-l.read:
		return l.readerEnded(nil)
	case <-l.exited:
		// A child of the model may hold the stub's end of the bell.
		return l.died()
	case <-ctx.Done():
	}
	l.in.note(PhaseStopping, nil)
	// The stub finishes what it has; how long that may take is Close's to say.
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

// look notes what the stub has started, as long as that can be seen.
func (l *life) look() {
	select {
	case <-l.exited: // its number may be another's by now
	default:
		l.in.model.supervisor.children.Look(l.process)
	}
}

// finalize tells the stub to end and waits for that, as long as it may take.
func (l *life) finalize() {
	l.look()
	if err := l.channel.Send(ipc.Finalize, 0, nil); err != nil {
		return
	}
	limit := panics.NewLimit(l.in.model.settings.FinalizeTimeout)
	defer limit.Stop()
	select {
	case <-l.exited:
	case <-l.failed: //nolint:errcheck // the end is wanted, however it comes
	case <-limit.C:
		l.in.log.Warn().Stringer("limit", l.in.model.settings.FinalizeTimeout).Msg("finalize did not return in time, process is killed")
	}
}

// busyLocked implements inFlightSession.
func (l *life) busyLocked(yes bool) {
	if yes {
		l.in.moveLocked(Busy)
	} else {
		l.in.moveLocked(Ready)
	}
}

// answered implements inFlightSession.
func (l *life) answered(lent *shm.Group) { l.loans.Answered(lent) }

// handle acts on one frame of the stub. It runs with the channel's receive lock
// held. An error ends the life.
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
		return l.bls.Steer(f)
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
