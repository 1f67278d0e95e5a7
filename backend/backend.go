package backend

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Backend opens the model versions whose config names it.
type Backend interface {
	// Open checks what can be checked without running the model.
	Open(env Env) (Model, error)
}

// Env is what a backend learns of a model version.
type Env struct {
	Name      string
	Namespace string // of the model, "" unless equal names may live in several
	Version   int64
	Directory string // the model's directory; Directory/Version holds its files
	// Config as read and normalised; a backend does not change it.
	Config *kserve.ModelConfig
	// Environment is the file that EXECUTION_ENV_PATH of the config means if it came from an object store; "": its value says.
	Environment string
	// Runtime is the model.py of a Python-based backend that serves this model, ""
	// if the version's own directory has the code.
	Runtime string
	// Plugin is the program that runs this model, "" unless its backend is a plugin.
	Plugin string
	// Settings of a Python-based backend's own, from the command line; nil: those
	// that the backend was made with.
	Settings map[string]string
	Host     Host
	// Responses takes what instances report of single responses, from any goroutine; nil: they are not counted.
	Responses func(ResponseReport)
	// Imported takes absolute paths of source files that an instance has imported, and of files that an import has
	// missed, and returns how many of them it does not watch. Any goroutine may call it; it looks at the files. Nil: none
	// is watched.
	Imported func(paths []string) (refused int)
}

// ResponseReport says how one response of a request went. Times are nanoseconds of Now, in order.
type ResponseReport struct {
	Index       int   // among the responses of its request
	Start       int64 // it was begun
	OutputStart int64 // its outputs were; 0: it has none
	End         int64 // it was sent
	Outcome     ResponseOutcome
}

// ResponseOutcome says what became of a response.
type ResponseOutcome uint8

// What becomes of responses. The numbers are those of docs/protocol.md.
const (
	ResponseSent      ResponseOutcome = 0
	ResponseFailed    ResponseOutcome = 1
	ResponseCancelled ResponseOutcome = 2
)

// Model is one version of a model.
type Model interface {
	// AutoComplete lets the model complete its config, given and returned as
	// JSON in the form of the config endpoint. It returns nil if the model has
	// nothing to say. The error text reaches clients.
	AutoComplete(ctx context.Context, config []byte) ([]byte, error)
	// Start brings up the instances of the final config, given also as JSON, and
	// returns when all are ready. After an error nothing of it is left. Each
	// instance is reported to events before Start returns, but for passive ones,
	// which never are.
	Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events Events) error
	// Instances lists what has been brought up, and not been ended or left, in the
	// order of the config.
	Instances() []Instance
	// Close ends the instances: live ones are told, the others are killed
	// when ctx ends. Batches in flight are executed first.
	Close(ctx context.Context) error
}

// Mapper is a Model whose instances may look at inputs in foreign memory where they lie, and
// put outputs where their clients want them.
type Mapper interface {
	// Maps reports whether all instances that take batches can do so with an input, which
	// may then be handed to them as it is. It does not wait. An instance that cannot
	// any more when its batch comes has the input copied.
	Maps(input *infer.Tensor) bool
	// Writes reports whether instances may put an output of a request into its place. It does
	// not wait. An instance that cannot leaves that to the front end.
	Writes(place *infer.Place) (some bool)
}

// DeviceTaker is a Mapper that may say, when its config is final, that inputs of any request may lie
// on a device.
type DeviceTaker interface {
	TakesDevices() bool
}

// Patient is a Model that says how long its beginning and its end may take.
type Patient interface {
	// InitializeTimeout bounds the warm-up of its instances; 0: no limit.
	InitializeTimeout() time.Duration
	// UnloadTimeout bounds the wait for requests in flight and for what the
	// model does when it ends, before it is ended by force; 0: no limit.
	UnloadTimeout() time.Duration
}

// MemoryReporter is a Model that knows how much memory is kept for it.
type MemoryReporter interface {
	// ReportMemory returns the bytes of the machine's memory that are real for what its
	// instances exchange with the server. It may be called from any goroutine.
	ReportMemory() (bytes int64)
}

// Asker is a Model whose own code may say that it is not ready: before a model
// calls it, Instance.Ready has to be asked.
type Asker interface {
	AsksReady() bool
}

// Strategist is a Model that decides itself which requests share a batch.
type Strategist interface {
	// Strategy is asked for once, before Start; nil: it does not.
	Strategy() Strategy
}

// Strategy decides which requests share a batch, beyond what the model's config
// demands: it can exclude a request and never add one. It matters only to models
// with dynamic_batching.
type Strategy interface {
	// Begin is called when a batch is begun, and again if that has to be begun
	// anew. The result, which may be nil, is asked in order about each request that
	// could join the batch; a request that is excluded closes the batch and begins
	// the next one. The first request is in, whatever the answer is, so that every
	// request is executed. Neither function blocks, or calls back, as the scheduler
	// is locked; batches are begun one at a time.
	Begin() (include func(*infer.Request) bool)
}

// Exchanger is a Model whose instances can be exchanged while it serves. Its
// methods are not called concurrently, but for Close.
type Exchanger interface {
	// Grow brings up the instances that config asks for and that are not there. When
	// these are ready and, as in Start, have been reported, it returns them as added, and
	// the instances that are there and not asked for as surplus. Both go on until End. What is
	// there is asked for if it has the settings of a group, its name and count
	// aside, and keeps its name. Config, given also as JSON, differs from that of
	// Start in its groups and its version policy alone. After an error nothing has
	// changed.
	Grow(ctx context.Context, config *kserve.ModelConfig, json []byte) (added, surplus []Instance, err error)
	// Leave says that an instance is to be ended: it goes on, but is not counted
	// among those that are there.
	Leave(in Instance)
	// End ends an instance and returns when nothing is left of it; the scheduler is
	// told by Lost, perhaps twice. Batches in flight are executed first, unless ctx ends.
	End(ctx context.Context, in Instance) error
}

// Placed is an Instance that knows which group of its model's config it is one
// of, and where it is placed.
type Placed interface {
	Group() *kserve.ModelInstanceGroup
	// Device is the number of its GPU, 0 elsewhere.
	Device() int32
}

// Wrapper is an Instance that stands in front of another.
type Wrapper interface {
	Wrapped() Instance
}

// Innermost returns the instance that a backend has brought up, whatever stands
// in front of it.
func Innermost(in Instance) Instance {
	for {
		w, ok := in.(Wrapper)
		if !ok {
			return in
		}
		in = w.Wrapped()
	}
}

// Instance executes one batch at a time (Triton's blocking execution policy); a
// Pipeliner takes the next one meanwhile.
type Instance interface {
	// Name is the instance's name as logs and error texts show it.
	Name() string
	// Execute hands a batch over and returns without waiting for it. The instance
	// calls b.Done once and answers every task, in either order: Done first lets the
	// next batch, which may be handed over inside Done, go to the model meanwhile. If Execute
	// panics, it has called and will call neither: the caller answers the batch.
	Execute(b *Batch)
	// Ready tells why the instance is not ready, nil if it is.
	Ready(ctx context.Context) error
}

// Awaiter is an Instance whose answer may be so near that waiting for it
// actively is cheaper than sleeping.
type Awaiter interface {
	// Await may return early, or not wait at all; the caller goes on to wait for
	// done. A value or the closing of done means that there is nothing to wait for.
	Await(done <-chan struct{})
}

// Pipeliner is an Instance that can be given one batch more while it executes
// another. Batches are executed in the order in which they are given.
type Pipeliner interface {
	// Ahead reports whether that makes sense now: executions are so short that
	// the instance would wait for its next batch a good part of the time. It is
	// false while the instance has one ahead, and where it would refuse one. It is
	// called with the scheduler locked: it neither blocks nor calls back.
	Ahead() bool
	// Withdraw asks for the batch ahead back, because another instance could
	// begin it at once. If it had not been begun, its Done is called, with Refused
	// and Withdrawn, before Withdraw returns or soon after; if it had, or there is
	// none, nothing happens.
	Withdraw()
}

// Canceller is an Instance that can tell a running model that no client waits for
// a task's answer any more.
type Canceller interface {
	// Cancel does not wait. The task is still answered by the model.
	Cancel(*Task)
}

// Events tells the scheduler which instances can be given work. They are not
// called concurrently for one instance.
type Events interface {
	// Available: the instance takes batches from now on.
	Available(Instance)
	// Lost: the instance takes no batches, as its process has ended. Tasks that it
	// had not looked at come back through Batch.Done with Refused set; the others are
	// answered before or right after. hopeless means that no new life is to be
	// expected soon. Lost is called again for a lost instance when it becomes hopeless.
	Lost(in Instance, hopeless bool)
}

// Host is what a running instance may ask of the server. The registry of models implements it
// and passes itself down when it opens a model.
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
	// Handle is the instance's own.
	Handle uint64
	// Lost is the instances' own too: how many processes have ended with the task
	// in flight that had not looked at it.
	Lost int
	// Send hands a response up. The instance sets Outputs, Parameters, Err,
	// Empty and Final; the packages above fill in the rest.
	Send infer.Sender
}

// Batch is what an instance executes with one call.
type Batch struct {
	Tasks []*Task
	// Trial is true for a warm-up, whose answers do not tell that an instance works.
	Trial bool
	// Done is called exactly once, by any goroutine.
	Done func(*Batch, Report)
}

// Report says how the execution of a batch went. Times are nanoseconds of Now, in
// order.
type Report struct {
	Start        int64 // the instance took the batch
	ComputeStart int64 // the model had its inputs
	ComputeEnd   int64 // the model had answered
	End          int64 // the instance was done with the batch; responses may still be on their way up
	// Err is what every unanswered task of the batch was answered with.
	Err error
	// Failed are the positions of tasks, ascending, that count as failed although
	// the batch does not; nil mostly. A task that its model has answered with an
	// error is no failure for Triton's Python models, so theirs are not here.
	Failed []int
	// Executed is true if the model was run, whether or not it failed.
	Executed bool
	// GPU is 1 + the number of the GPU of the instance, 0: it has none.
	GPU int32
	// Refused is true if nothing of the batch was looked at: no task was
	// answered, and all of them may be given to another instance.
	Refused bool
	// Reported is true if the four times are those that a backend's author has reported.
	Reported bool
	// Rescheduled are tasks of the batch that the model has released in order to
	// get them again; they have not been answered.
	Rescheduled []*Task
	// Withdrawn is true, beside Refused, if the instance gave the batch back as
	// it was asked to, and goes on taking others.
	Withdrawn bool
	// Made is when Done is called, by a clock that was read just before; 0: none was. The times above may be the model's own.
	Made int64
}
