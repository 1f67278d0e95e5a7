package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/vmihailenco/msgpack/v5"
)

// life is one stub process and all that belongs to it.
type life struct {
	in      *Instance
	channel *ipc.Channel
	process *launch.Process
	output  *output.Capture
	loans   *shm.Loans
	down    *names // guarded by Instance.submit
	up      *names // guarded by the channel's receive lock
	// told is what the stub has been asked so far. The names are made before it
	// says INITIALIZE.
	told atomic.Uint32

	// decoupled is what INITIALIZE says.
	decoupled bool

	encoder encoder // guarded by Instance.submit
	// encoded is the last batch of whose requests everything has been read: one
	// that is answered earlier is not known to the stub yet.
	encoded atomic.Uint64

	hello       chan error // receives one value: HELLO came
	completed   chan error // receives one value: nil, or why auto_complete_config failed
	completion  []byte     // what the model made of its config; set before completed receives
	initialized chan error // receives one value: nil, or why the model failed
	asks        bool       // the model has is_ready; set before initialized receives
	failed      chan error // buffered, first value counts: this life must end
	exited      chan struct{}
	exit        *launch.ExitError // set when exited is closed
	read        chan struct{}
	readErr     error // of the reader, set when read is closed

	infers inferences // requests that the model has made
	// callee is where the latest of them was handed over that has not ended, nil if
	// that is not known. Informed is when the stub has been given an answer last, ns.
	callee   atomic.Pointer[life]
	informed atomic.Int64
	handed   atomic.Int64 // ns, when the latest batch was published

	// withdrawing counts those that give a batch back which was asked for.
	withdrawing sync.WaitGroup

	// Guarded by Instance.mu.
	inside [depth]inside // batches that the stub has, the one that it executes first
	count  int           // of them
	number uint64        // of the batch that was handed over last
	freed  int64         // ns, when the last answer came
	asked  withdrawal
	timer  *time.Timer // of the first batch, nil without a limit
	open   opened
	probes uint64 // questions whether the model is ready
	check  *check // the one that is not answered yet
	// late is a batch that was published when the life had ended already.
	late struct{ number, position uint64 }
	left left // what the life had when it ended

	calls *calls

	seen     phase
	response ipc.ResponseBody // reused; guarded by the receive lock
	logLimit output.Limit     // of LOG; guarded by the receive lock
	copies   copies
}

// left is what a life had when it ended and has not been answered. Guarded by
// Instance.mu until taken, then the end's own.
type left struct {
	taken   bool     // from the instance
	wasUp   bool     // and the scheduler has not been told that it is not any more
	batches []inside // without a batch: answered
	open    []*stream
	asked   uint64 // the latest question whether the model is ready
}

// phase is what the stub has said so far; guarded by the receive lock.
type phase uint8

const (
	phaseStarted phase = iota
	phaseHello
	phaseCompleted
	phaseInitialized
	phaseFinalized
)

// What a stub has been asked.
const (
	toldNothing uint32 = iota
	toldAutoComplete
	toldInitialize
)

// errNeverReady marks the loss of a stub that had not become ready.
var errNeverReady = errors.New("stub did not become ready")

// runOnce lives one life: start, handshake, serve, reap. up is called when the
// stub is ready.
func (in *Instance) runOnce(ctx context.Context, up func()) error {
	var l *life
	err := boundary.Run(in.log, boundary.Life, func() (err error) {
		l, err = in.take()
		return err
	})
	if err != nil {
		in.move(Lost, nil)
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	err = boundary.Run(in.log, boundary.Life, func() error { return l.run(ctx, up) })
	boundary.Guard(in.log, boundary.Life, func() { l.end(err) }, func(error) { l.drop(err) })()
	return err
}

// run lives a life that has begun, up to the reason for its end.
func (l *life) run(ctx context.Context, up func()) error {
	in := l.in
	if err := l.handshake(ctx); err != nil {
		if errors.Is(err, errStopped) {
			return err
		}
		return fmt.Errorf("%w: %w", errNeverReady, err)
	}
	in.move(Ready, l)
	in.current.Store(l)
	if in.doomed.Load() { // whoever said so may not have seen this one
		l.process.Kill()
	}
	in.asks.Store(l.asks)
	in.model.supervisor.metrics.StubStarted(in.model.env.Name)
	// Up may hand a batch over at once.
	in.up()
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

// drop is what is left of an end that went wrong: the process goes, and with the
// channel its memory; what has not been answered is.
func (l *life) drop(cause error) {
	in := l.in
	l.apart(func() { l.leave(errors.Is(cause, errStopped)) })
	l.apart(l.process.Kill)
	<-l.exited
	in.submit.Lock()   // as in end
	in.submit.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	l.apart(func() { in.model.supervisor.children.Forget(l.process) })
	l.apart(l.channel.Close)
	select {
	case <-l.read:
	case <-time.After(closedLimit): // its channel may not be closed
	}
	l.apart(l.loans.Close)
	l.answerLeft(nil)
}

// take returns a life that has completed the model's config, or begins one.
func (in *Instance) take() (*life, error) {
	if l := in.primed; l != nil {
		in.primed = nil
		return l, nil
	}
	return in.begin()
}

// begin makes a channel and starts a process. Its end must be waited for by end.
func (in *Instance) begin() (*life, error) {
	s, settings := in.model.supervisor, in.model.settings
	in.model.mu.Lock()
	in.model.lives++
	number := in.model.lives
	in.model.mu.Unlock()
	var l *life
	config := ipc.Config{
		Life: number, Backing: settings.Backing(), MaxArena: settings.MaxBytes, FreeArena: settings.DefaultBytes,
		Linger: func() time.Duration {
			if l.hasBatch() && in.await.worthwhile(settings.Spin) {
				return settings.Spin
			}
			return 0
		},
		Lingered: in.await.spun,
		Broken:   func(err error) { l.fail(err) },
		Log:      in.log,
	}
	s.chargeArena(&config)
	channel, err := ipc.New(config)
	if err != nil {
		return nil, &shortage{infer.Errorf(infer.Internal, "Unable to initialize shared memory key '%s' to requested size (%d bytes). If you are running Triton inside docker, use '--shm-size' flag to control the shared memory region size. %s Error: %v",
			in.name, settings.DefaultBytes, in.model.program.Text(LeastMemory, in.name), err), err}
	}
	loans := &shm.Loans{}
	l = &life{
		in: in, channel: channel, loans: loans,
		hello: make(chan error, 1), completed: make(chan error, 1), initialized: make(chan error, 1),
		failed: make(chan error, 1), exited: make(chan struct{}), read: make(chan struct{}),
		logLimit: output.NewLimit(),
		calls:    newCalls(s.metrics.Custom(in.model.env.Name)),
	}
	l.copies.account = s.account
	l.infers.open()
	l.encoder = encoder{pool: s.requests, loans: loans}
	files := Files{Peer: channel.Peer()}
	defer files.close()
	begun := false
	defer func() {
		if begun {
			return
		}
		if l.output != nil {
			l.output.Close()
		}
		channel.Close()
		l.calls.end(false)
	}()
	if files.Requests, err = s.requestsFile(); err == nil {
		l.output, files.Output, err = output.Open(in.log.With().Str("file", "output").Logger(), s.printed(settings))
	}
	if err == nil {
		l.process, err = in.model.program.Start(in.name, &files)
	}
	if err == nil {
		launch.Arm(files.Peer.Lifeline, l.process)
	}
	if err != nil {
		return nil, err
	}
	begun = true
	boundary.Go(in.log, boundary.Life, func() {
		defer close(l.read)
		l.readErr = boundary.Run(in.log, boundary.Life, func() error { return l.channel.Run(l.handle) })
	}, nil)
	l.output.Begin()
	boundary.Go(in.log, boundary.Life, func() {
		defer close(l.exited)
		l.exit = &launch.ExitError{Code: -1}
		l.exit = l.process.Wait()
	}, nil)
	// It waits to be told what to import, so that runs where it should, threads
	// and all.
	if err := pin(l.process.PID(), in.cores); err != nil {
		l.fail(err)
	}
	return l, nil
}

// greet waits for HELLO.
func (l *life) greet(ctx context.Context) error {
	if err := l.await(ctx, l.hello, l.in.model.settings.StubTimeout, "say HELLO"); err != nil {
		return err
	}
	if err := l.channel.Attached(); err != nil {
		return fmt.Errorf("unlink shared memory: %w", err)
	}
	return nil
}

// handshake waits for HELLO, unless it has come, sends INITIALIZE and waits for
// INITIALIZED.
func (l *life) handshake(ctx context.Context) error {
	if l.told.Load() == toldNothing {
		if err := l.greet(ctx); err != nil {
			return err
		}
	}
	inputs, outputs := l.in.model.tensorNames()
	if err := checkNames(inputs, outputs); err != nil {
		return err
	}
	l.down, l.up = newNames(inputs, outputs), newNames(inputs, outputs)
	l.encoder.names = l.down
	l.decoupled = l.in.model.decoupled()
	l.told.Store(toldInitialize)
	l.hear(true)
	question := l.initialization()
	if err := l.ask(ipc.Initialize, l.in.model.program.Initialize(l.in.placement(), question)); err != nil {
		return err
	}
	if levels := l.in.model.supervisor.levels(); levels != question.Log {
		// They have changed, and whoever says so may have been faster.
		if err := l.ask(ipc.LogSettings, levels); err != nil {
			return err
		}
	}
	return l.await(ctx, l.initialized, l.in.model.settings.InitializeTimeout, "initialize its model")
}

// ask sends a frame whose body is a map.
func (l *life) ask(kind ipc.Kind, fields any) error {
	if err := checkFields(kind, fields); err != nil {
		return err
	}
	body, err := msgpack.Marshal(fields)
	if err != nil {
		return err
	}
	return l.sendBody(kind, 0, body)
}

// await waits for one of the stub's messages, or for its end.
func (l *life) await(ctx context.Context, message <-chan error, limit time.Duration, what string) error {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err := <-l.failed: // whatever the stub has said before that
		return err
	default:
	}
	select {
	case err := <-message:
		return err
	case err := <-l.failed:
		return err
	case <-l.read:
		return l.readerEnded(message)
	case <-l.exited:
		// Its last frame may still be on its way through the reader. A child of the
		// model may hold the bell, so the end of the file is not waited for.
		select {
		case err := <-message:
			return err
		case <-l.read:
			return l.readerEnded(message)
		case <-time.After(closedLimit):
			return l.died()
		}
	case <-late:
		return &lateError{fmt.Sprintf("stub did not %s within %s", what, limit)}
	case <-ctx.Done():
		return errStopped
	}
}

// readerEnded says why the stub's frames ended.
func (l *life) readerEnded(message <-chan error) error {
	if l.readErr != nil {
		return l.readErr
	}
	select {
	case err := <-message: // said before the end
		return err
	default:
	}
	// End of file: mostly because the process ends. If it does not, it has closed
	// its descriptors and cannot be used.
	select {
	case <-l.exited:
		return l.died()
	case <-time.After(closedLimit):
		return errors.New("stub closed its end of the channel and lives on")
	}
}

// closedLimit is how long after the end of its bell a stub may take to end.
const closedLimit = 500 * time.Millisecond

// died says how the process ended, or why it was killed if we did it.
func (l *life) died() error {
	select {
	case err := <-l.failed:
		return err
	default:
	}
	l.exit.Stderr = l.output.LastLines()
	return l.exit
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
	// The stub finishes what it has; how long that may take is Close's to say.
	select {
	case <-l.emptied():
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
	limit := time.NewTimer(orForever(l.in.model.settings.FinalizeTimeout))
	defer limit.Stop()
	select {
	case <-l.exited:
	case <-l.failed: //nolint:errcheck // the end is wanted, however it comes
	case <-limit.C:
		l.in.log.Warn().Stringer("limit", l.in.model.settings.FinalizeTimeout).Msg("finalize did not return in time, stub is killed")
	}
}

func orForever(d time.Duration) time.Duration {
	if d <= 0 {
		return 1<<63 - 1
	}
	return d
}

// fail ends the life because of err. It does not wait.
func (l *life) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
	l.process.Kill()
}

// end takes everything down that belongs to the life, and answers what the stub
// still had.
func (l *life) end(cause error) {
	in := l.in
	var broke *ipc.ProtocolError
	liar := errors.As(cause, &broke)
	if liar {
		in.model.supervisor.metrics.ProtocolError(broke.Rule)
	}
	l.leave(errors.Is(cause, errStopped))
	l.settle(l.left.asked, in.fault(infer.Internal, ReadyLost))
	in.current.CompareAndSwap(l, nil)

	l.look()
	l.process.Kill() // and with it, when it is reaped, its group
	<-l.exited
	l.process.KillFamily()
	// Whoever hands a batch over may not have noticed yet that the life has ended.
	in.submit.Lock()
	in.submit.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	left := l.left.batches
	taken := make([]bool, len(left))
	for i := range left {
		if left[i].number == l.late.number {
			left[i].position = l.late.position
		}
		// What a stub that broke the protocol says of its head is not believed: its
		// batch may be why, and would break the next one too.
		taken[i] = liar || left[i].streams != nil || l.channel.Taken(left[i].position) || left[i].lostAgain()
	}
	in.model.supervisor.children.Forget(l.process)
	l.hear(false)
	l.output.Finish()
	l.channel.Close()
	<-l.read
	l.infers.close()
	l.loans.Close()

	l.answerLeft(taken)
	in.model.supervisor.children.KillOrphans(l.process)
	l.calls.end(l.seen == phaseFinalized && !liar)
}

// leave takes the life from its instance, and notes what the stub still had before
// anything that could go wrong. It does so once.
func (l *life) leave(stopped bool) {
	in := l.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.left.taken {
		return
	}
	l.left.taken, l.left.wasUp, l.left.asked = true, in.life == l, l.probes
	in.life = nil
	l.left.batches = append(l.left.batches, l.inside[:l.count]...)
	l.inside, l.count = [depth]inside{}, 0
	l.left.open = l.endOpenLocked()
	if stopped {
		in.moveLocked(Stopped)
	} else {
		in.moveLocked(Lost)
	}
	l.limitLocked()
	l.emptiedLocked()
}

// answerLeft answers what has not been answered of what the stub had, gives back those
// batches that it has not taken, and says that the instance is down. Taken is nil if
// the stub may have taken each.
func (l *life) answerLeft(taken []bool) {
	batches := l.left.batches
	for i := len(batches) - 1; i >= 0; i-- { // what goes back to the queue's front keeps its order
		if taken != nil && !taken[i] {
			l.apart(func() { l.abandon(&batches[i], false) })
		}
	}
	if l.left.wasUp {
		l.left.wasUp = false
		l.apart(func() { l.in.down(false) })
	}
	for i := range batches {
		l.apart(func() { l.abandon(&batches[i], true) })
	}
	for len(l.left.open) > 0 {
		s := l.left.open[0]
		l.left.open = l.left.open[1:]
		l.apart(func() { s.task.Send(infer.ErrorResponse(l.in.unhealthy())) })
	}
}

// mostLost is how many lives may end with a request inside.
const mostLost = 2

// lostAgain takes account of a life that ends before it has looked at a batch that
// lay in its ring, and reports whether that is once too often for one of the
// requests.
func (i *inside) lostAgain() (enough bool) {
	if i.position == math.MaxUint64 { // it was never there
		return false
	}
	for _, task := range i.batch.Tasks {
		task.Lost++
		enough = enough || task.Lost >= mostLost
	}
	return enough
}

// abandon answers the batch that a lost stub had, or gives it back if the stub
// had not looked at it; once.
func (l *life) abandon(of *inside, taken bool) {
	batch := of.batch
	if batch == nil {
		return
	}
	of.batch = nil
	if !taken {
		batch.Done(batch, backend.Report{Refused: true})
		return
	}
	err := l.in.unhealthy()
	now := ipc.Now()
	l.apart(func() {
		batch.Done(batch, backend.Report{Start: of.begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err})
	})
	for i, task := range batch.Tasks {
		if s := of.stream(i); s == nil || !s.ended {
			l.apart(func() { task.Send(infer.ErrorResponse(err)) })
		}
	}
}
