package backend

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Backend opens the model versions whose config names it.
type Backend interface {
	// Open makes every check that does not need to run the model.
	Open(env Env) (Model, error)
}

// Env describes a model version to its backend.
type Env struct {
	Name      string
	Namespace string // of the model; "" unless several models may have the same name
	Version   int64
	Directory string // the model's directory; Directory/Version holds its files
	// Config as read and normalised; a backend does not change it.
	Config *kserve.ModelConfig
	// Environment is the file to which EXECUTION_ENV_PATH of the config refers if it came from an
	// object store. If "", the value itself is the path.
	Environment string
	// Runtime is the model.py of a Python-based backend that serves this model; "" if the version's
	// own directory has the code.
	Runtime string
	// Plugin is the program that runs this model; "" unless its backend is a plugin.
	Plugin string
	// Settings are a Python-based backend's own settings from the command line. nil means the
	// settings that the backend was made with.
	Settings map[string]string
	Host     Host
	// Responses receives the reports of instances about single responses, from any goroutine. nil
	// ignores them.
	Responses func(ResponseReport)
	// Imported receives absolute paths of source files that an instance has imported or tried to
	// import. It returns how many of them are not watched. Any goroutine may call it; it reads the
	// files' metadata. nil watches no files.
	Imported func(paths []string) (refused int)
}

// ResponseReport describes one response of a request. Times are nanoseconds of Now, in order.
type ResponseReport struct {
	Index       int   // among the responses of its request
	Start       int64 // when the response was begun
	OutputStart int64 // when its outputs were begun; 0 without outputs
	End         int64 // when it was sent
	Outcome     ResponseOutcome
}

// ResponseOutcome is the result of sending a response.
type ResponseOutcome uint8

// The outcomes. The numbers are those of docs/protocol.md.
const (
	ResponseSent      ResponseOutcome = 0
	ResponseFailed    ResponseOutcome = 1
	ResponseCancelled ResponseOutcome = 2
)

// Model is one version of a model.
type Model interface {
	// AutoComplete lets the model complete its config, given and returned as JSON in the form of
	// the config endpoint. It returns nil if the model changes nothing. The error text reaches
	// clients.
	AutoComplete(ctx context.Context, config []byte) ([]byte, error)
	// Start starts the instances of the final config, also given as JSON, and returns when all are
	// ready. If it fails it leaves nothing behind. Each instance is reported to events before Start
	// returns, except passive ones, which are never reported.
	Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events Events) error
	// Instances lists the running instances in the order of the config. Instances that have been
	// ended or passed to Leave are not listed.
	Instances() []Instance
	// Close executes the batches in flight and ends the instances. It kills the remaining instances
	// when ctx ends.
	Close(ctx context.Context) error
	// Capabilities returns the model's optional abilities, which do not change.
	Capabilities() ModelCapabilities
}

// ModelCapabilities are the optional abilities of a Model. A nil or zero field is an ability that
// the model lacks.
type ModelCapabilities struct {
	Mapper    Mapper
	Exchanger Exchanger
	// Strategy is called once, before Start. It returns how the model chooses which requests share
	// a batch, or nil if it does not choose.
	Strategy func() Strategy
	// AsksReady reports whether the model's own code may report that it is not ready. Before
	// another model calls it, Instance.Ready has to be called.
	AsksReady func() bool
	// ReportMemory returns the bytes of memory that the model's instances use to exchange data with
	// the server. Any goroutine may call it.
	ReportMemory func() (bytes int64)
	// InitializeTimeout limits the warm-up of the instances; 0 means no limit.
	InitializeTimeout time.Duration
	// UnloadTimeout limits the wait for requests in flight and for the model's own cleanup. After
	// it the model is ended by force. 0 means no limit.
	UnloadTimeout time.Duration
}

// Mapper is a Model whose instances can read inputs in foreign memory in place, and write outputs
// where their clients want them.
type Mapper interface {
	// Maps reports whether every instance that takes batches can read the input in place. Then the
	// input may be passed on as it is. Maps does not wait. An instance that can no longer do it
	// when its batch arrives has the input copied.
	Maps(input *infer.Tensor) bool
	// Writes reports whether some instance may write an output directly to its place. It does not
	// wait. Where an instance cannot, the front end copies the output.
	Writes(place *infer.Place) (some bool)
	// TakesDevices reports, once the config is final, whether inputs of any request may lie on a
	// device.
	TakesDevices() bool
}

// Strategy chooses which requests share a batch, beyond the rules of the model's config. It can
// exclude a request but never add one. It matters only to models with dynamic_batching.
type Strategy interface {
	// Begin is called when a batch is begun, and again if the batch has to be begun again. The
	// result may be nil. Otherwise it is called in order for each request that could join the
	// batch; a request that it excludes closes the batch and begins the next one. The first request
	// is always included, so every request is executed. Neither function may block or call back,
	// because the scheduler is locked. Batches are begun one at a time.
	Begin() (include func(*infer.Request) bool)
}

// Exchanger is a Model whose instances can be exchanged while it serves. Its methods are not called
// concurrently, except Close.
type Exchanger interface {
	// Grow starts the instances that config asks for and that do not exist yet. When they are ready
	// and, as in Start, have been reported, Grow returns them as added. It returns the instances
	// that config no longer asks for as surplus; they continue until End. An existing instance is
	// asked for if a group has its settings, apart from name and count; it keeps its name. config,
	// also given as JSON, differs from Start's only in its groups and its version policy. If Grow
	// fails, nothing has changed.
	Grow(ctx context.Context, config *kserve.ModelConfig, json []byte) (added, surplus []Instance, err error)
	// Leave takes an instance that is to be ended out of Instances. It continues until End.
	Leave(in Instance)
	// End ends an instance and returns when nothing of it is left. The scheduler hears of it by
	// Lost, perhaps twice. Batches in flight are executed first, unless ctx ends.
	End(ctx context.Context, in Instance) error
}

// Innermost returns the backend's own instance, without its wrappers.
func Innermost(in Instance) Instance {
	for {
		inner := in.Capabilities().Wrapped
		if inner == nil {
			return in
		}
		in = inner
	}
}

// Cancel tells the instance of a task, if any, that no client waits for the task any more.
func Cancel(in Instance, task *Task) {
	if in == nil {
		return
	}
	if c := in.Capabilities().Canceller; c != nil {
		c.Cancel(task)
	}
}

// Instance executes one batch at a time (Triton's blocking execution policy). A Pipeliner accepts
// the next batch meanwhile.
type Instance interface {
	// Name is the instance's name in logs and error texts.
	Name() string
	// Execute submits a batch and returns without waiting for it. The instance calls b.Done once
	// and answers every task, in either order. If Done comes first, the next batch can reach the
	// model meanwhile; it may be submitted inside Done. If Execute panics, the instance calls
	// neither, and the caller answers the batch.
	Execute(b *Batch)
	// Ready returns why the instance is not ready, or nil.
	Ready(ctx context.Context) error
	// Capabilities returns the instance's optional abilities, which do not change.
	Capabilities() Capabilities
}

// Instances returns the instances of a backend's own type as a list of Instance.
func Instances[I Instance](own []I) []Instance {
	list := make([]Instance, len(own)) // bound: the instances
	for i, in := range own {
		list[i] = in
	}
	return list
}

// Capabilities are the optional abilities of an Instance. A nil field is an ability that it lacks.
type Capabilities struct {
	Awaiter     Awaiter
	Pipeliner   Pipeliner
	Canceller   Canceller
	GroupMember GroupMember
	TurnTaker   TurnTaker
	// Wrapped is the instance around which this one is a wrapper.
	Wrapped Instance
}

// Awaiter is an Instance whose response may be so near that spinning is cheaper than sleeping.
type Awaiter interface {
	// Await may return early, or at once; the caller then waits for done. A value in done, or
	// closing it, ends the wait.
	Await(done <-chan struct{})
}

// Pipeliner is an Instance that accepts one more batch while it executes another. It executes
// batches in the order in which they were submitted.
type Pipeliner interface {
	// Ahead reports whether a batch ahead makes sense now: executions are so short that the
	// instance would spend much of its time waiting for the next batch. It is false while the
	// instance has a batch ahead, and where it would refuse one. It is called with the scheduler
	// locked, so it neither blocks nor calls back.
	Ahead() bool
	// Withdraw asks for the batch ahead back, because another instance could begin it at once. If
	// the batch has not been begun, its Done is called, with Refused and Withdrawn, before Withdraw
	// returns or soon after. Otherwise nothing happens.
	Withdraw()
}

// Canceller is an Instance that can tell a running model that no client waits for a task any more.
type Canceller interface {
	// Cancel does not wait. The model still answers the task.
	Cancel(*Task)
}

// GroupMember is an Instance that knows its group in the model's config and its device.
type GroupMember interface {
	Group() *kserve.ModelInstanceGroup
	// Device is the number of its GPU, 0 elsewhere.
	Device() int32
}

// TurnTaker is an Instance that takes turns with the instances of all models, as the rate limiter
// decides. Recall and Score may be called with a scheduler locked.
type TurnTaker interface {
	Instance
	// Apply asks for a turn. bls are the BLS requests that wait for it.
	Apply(by Applicant, bls []*infer.Request)
	// Recall withdraws the request for a turn, or returns nil if the turn has already come. The
	// result is called with nothing locked, as others may be next.
	Recall() (others func())
	// Mention adds a BLS request that waits for the turn: its callers may hold resources that the
	// instance needs. It is called with nothing locked.
	Mention(req *infer.Request)
	// Score orders the instances of a model: the lowest is next.
	Score() uint64
}

// Applicant is a scheduler that chooses its batch when its turn has come. Until then a batch can
// grow, requests can expire, and queued requests count as pending. It is called with nothing
// locked.
type Applicant interface {
	// Granted returns the batch for an instance whose turn has come, or nil.
	Granted(in TurnTaker) *Batch
	// Settled is called when the instance has the batch, or has given its turn back.
	Settled()
}

// Events tells the scheduler which instances accept batches. The methods are not called
// concurrently for one instance.
type Events interface {
	// Available reports that the instance accepts batches from now on.
	Available(Instance)
	// Lost reports that the instance accepts no batches, because its process has ended. Tasks that
	// it had not looked at come back through Batch.Done with Refused set; the others are answered
	// before or right after. hopeless means that no new process is expected soon. Lost is called
	// again for a lost instance when it becomes hopeless.
	Lost(in Instance, hopeless bool)
}

// Host is the server as a running instance sees it. The registry of models implements it and passes
// itself down when it opens a model.
type Host interface {
	// Target finds the version that a BLS request would reach (infer.LatestVersion: the highest
	// that is ready). The version stays open until Target.Release.
	Target(model string, version int64) (Target, error)
	// Load and Unload change which models are loaded. They fail with an infer.Error unless the
	// server is in explicit control mode. config is a ModelConfig as JSON, "" for none; files
	// are contents by path. Unload returns when unloading has begun; dependents includes the
	// composing models of an ensemble.
	Load(ctx context.Context, model, config string, files map[string][]byte) error
	Unload(ctx context.Context, model string, dependents bool) error
	// ModelReady reports whether a version serves and says itself that it is ready. An unknown
	// version is an infer.Error.
	ModelReady(ctx context.Context, model string, version int64) (bool, error)
}

// Target is a version that a model calls. Everything that the caller asks of it concerns the same
// version, even if the model is reloaded meanwhile. An unload waits for Release, which the
// caller calls once, after Submit.
type Target interface {
	infer.Submitter
	Release()
	// Decoupled reports whether the version may send any number of responses to a request.
	Decoupled() bool
	// AsksReady reports whether Ready has to be called before Submit.
	AsksReady() bool
	// Ready returns why the version is not ready, or nil.
	Ready(ctx context.Context) error
	// TakesDevices reports whether inputs may reach the version on a device. Otherwise they are
	// copied to the host.
	TakesDevices() bool
}

// Task is one request on its way through an instance.
type Task struct {
	Context context.Context // ends when the client has gone or the server stops
	Request *infer.Request
	// Handle is used by the instance alone.
	Handle uint64
	// Lost counts the processes that ended with the task in flight before they had looked at it.
	// Only instances use it.
	Lost int
	// Send delivers a response. The instance sets Outputs, Parameters, Err, Empty and Final; the
	// packages above fill in the rest.
	Send infer.Sender
}

// Batch is the tasks that an instance executes with one call.
type Batch struct {
	Tasks []*Task
	// Trial marks a warm-up, whose responses do not prove that an instance works.
	Trial bool
	// Done is called exactly once, by any goroutine.
	Done func(*Batch, Report)
}

// Report describes the execution of a batch. Times are nanoseconds of Now, in order.
type Report struct {
	Start        int64 // when the instance took the batch
	ComputeStart int64 // when the model had its inputs
	ComputeEnd   int64 // when the model had answered
	End          int64 // when the instance was done with the batch; responses may still be on their way up
	// Err is the error with which every unanswered task of the batch was answered.
	Err error
	// Failed lists the positions, ascending, of tasks that count as failed although the batch does
	// not; usually nil. A task that its model has answered with an error is no failure for Triton's
	// Python models, so those are not listed.
	Failed []int
	// Executed reports whether the model was run, even if it failed.
	Executed bool
	// GPU is 1 + the number of the instance's GPU, 0 without one.
	GPU int32
	// Refused reports that the instance has not looked at the batch: no task was answered, and all
	// of them may be given to another instance.
	Refused bool
	// Reported reports that the backend's author has supplied the four times.
	Reported bool
	// Rescheduled lists tasks of the batch that the model has released in order to receive them
	// again. They have not been answered.
	Rescheduled []*Task
	// Withdrawn reports, with Refused, that the instance gave the batch back on request and still
	// accepts others.
	Withdrawn bool
	// Made is the time of the call of Done, by a clock that was read just before; 0 without one.
	// The times above may be the model's own.
	Made int64
}
