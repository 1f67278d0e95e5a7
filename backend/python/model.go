package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/rs/zerolog"
)

// Model is one version of a Python model.
type Model struct {
	backend *Backend
	env     backend.Env
	// settings are the backend's, or those of a Python-based one.
	settings *Config
	path     string // of the model file
	log      zerolog.Logger

	// Set by Start, before the instances run. What config says of instances may be
	// out of date.
	config *kserve.ModelConfig
	events backend.Events
	// overlap is how many calls of an asynchronous execute may overlap.
	overlap int

	// primed is the instance whose stub has completed the config, between
	// AutoComplete and Start.
	primed *Instance

	run     context.Context // of all instances
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	instances []*Instance
	starting  []*Instance // that were launched last; among instances when all are ready
	leaving   []*Instance // that are to be ended
	closed    bool        // no instance is started any more
	lives     uint32      // stub processes so far, of all instances
}

var (
	_ backend.Model   = (*Model)(nil)
	_ backend.Updater = (*Model)(nil)
	_ backend.Patient = (*Model)(nil)
)

func (b *Backend) open(env backend.Env) (*Model, error) {
	m := &Model{
		backend: b, env: env, settings: &b.config, path: env.Runtime,
		log: b.log.With().Str("model", env.Name).Int64("version", env.Version).Logger(),
	}
	if env.Settings != nil {
		settings, err := ParseConfig(env.Settings)
		if err != nil {
			return nil, err
		}
		m.settings = &settings
	}
	if _, err := os.Stat(filepath.Join(env.Directory, "triton_python_backend_stub")); err == nil {
		m.log.Warn().Msgf("the model brings a triton_python_backend_stub of its own, which cannot be used here: name its interpreter with --backend-config=%s,python-executable=PATH",
			env.Config.GetBackend())
	}
	if _, packed := env.Config.GetParameters()["EXECUTION_ENV_PATH"]; packed {
		return nil, infer.Errorf(infer.Unsupported,
			"model '%s' has the parameter EXECUTION_ENV_PATH, but this server does not unpack environments: name an interpreter with --backend-config=%s,python-executable=PATH",
			env.Name, env.Config.GetBackend())
	}
	if err := m.checkInputPlace(); err != nil {
		return nil, err
	}
	if env.Runtime != "" {
		// Its packages may be nowhere else, so it is not run without them.
		packed := filepath.Join(filepath.Dir(env.Runtime), "pb_exec_env_model.py.tar.gz")
		if _, err := os.Stat(packed); err == nil {
			return nil, infer.Errorf(infer.Unsupported,
				"backend '%s' of model '%s' has an execution environment, but this server does not unpack environments: name an interpreter with --backend-config=%s,python-executable=PATH",
				env.Config.GetBackend(), env.Name, env.Config.GetBackend())
		}
		return m, nil
	}
	file := env.Config.GetDefaultModelFilename()
	if file == "" {
		file = "model.py"
	}
	if !strings.HasSuffix(file, ".py") {
		return nil, infer.Errorf(infer.Internal, "Model name must end with '.py'. Model name is \"%s\".", file)
	}
	if file != filepath.Base(file) {
		return nil, infer.Errorf(infer.InvalidArg, "default_model_filename of model '%s' is %q, want the name of a file in the version directory", env.Name, file)
	}
	m.path = filepath.Join(m.directory(), file)
	return m, nil
}

// checkInputPlace looks at the parameter that says whether inputs may lie on a
// GPU. None does here, but what Triton does not load is not loaded.
func (m *Model) checkInputPlace() error {
	p, ok := m.env.Config.GetParameters()["FORCE_CPU_ONLY_INPUT_TENSORS"]
	if !ok {
		return nil
	}
	switch p.GetStringValue() {
	case "yes":
		m.log.Info().Msg("Forcing CPU only input tensors.")
	case "no":
		m.log.Info().Msg("Input tensors can be both in CPU and GPU. FORCE_CPU_ONLY_INPUT_TENSORS is off.")
	default:
		return infer.Errorf(infer.Unsupported, "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: %s'", p.GetStringValue())
	}
	return nil
}

// directory is the version's.
func (m *Model) directory() string {
	return filepath.Join(m.env.Directory, strconv.FormatInt(m.env.Version, 10))
}

// check refuses a model that cannot be started. The stub is named so in the text
// which says that the model's file is missing.
func (m *Model) check(stub string) error {
	if _, err := os.Stat(m.path); err != nil {
		// Triton notices this in the stub, prints a line and waits in vain.
		m.log.Error().Msgf("Failed to preinitialize Python stub: Python model file not found in '%s'", m.path)
		err := unhealthy(stub)
		err.Message += fmt.Sprintf(" Python model file not found in '%s'", m.path)
		return err
	}
	if err := m.checkLink(); err != nil {
		return err
	}
	if _, err := m.backend.python(m.settings).template(); err != nil {
		return infer.Errorf(infer.Internal, "%v", err)
	}
	return nil
}

// Start implements backend.Model.
func (m *Model) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	if err := m.prepare(config, json, events); err != nil {
		m.dismiss(ctx)
		return err
	}
	m.primed = nil
	m.run, m.cancel = context.WithCancel(context.Background())
	return m.launch(ctx, m.list())
}

// launch starts the keepers of instances and returns when all are ready. After
// an error all of these have ended; those that have not when ctx does are killed.
func (m *Model) launch(ctx context.Context, instances []*Instance) error {
	outcomes := make(chan error, len(instances))
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return infer.Errorf(infer.Unavailable, "model '%s' is being unloaded", m.env.Name)
	}
	m.starting = instances
	for _, in := range instances {
		m.log.Info().Msgf("TRITONBACKEND_ModelInstanceInitialize: %s (%s device %s)", in.name, in.kind, in.device)
		run, cancel := context.WithCancel(m.run)
		in.cancel, in.ended = cancel, make(chan struct{})
		m.running.Go(boundary.Guard(m.log, boundary.Life, func() {
			defer close(in.ended)
			var once sync.Once
			started := func(err error) {
				if err != nil {
					err = &startFailure{instance: in.name, err: err}
				}
				once.Do(func() { outcomes <- err })
			}
			boundary.Guard(in.log, boundary.Life, func() { in.Run(run, started) }, func(err error) {
				in.stop(true)
				started(err)
			})()
		}, nil))
	}
	m.mu.Unlock()
	var failure error
	for i := 0; i < len(instances) && failure == nil; i++ {
		select {
		case failure = <-outcomes:
		case <-ctx.Done():
			failure = context.Cause(ctx)
		}
	}
	if failure == nil {
		return nil
	}
	for _, in := range instances {
		in.cancel()
	}
	limit := time.NewTimer(orForever(m.settings.UnloadTimeout))
	defer limit.Stop()
	for _, in := range instances {
		select {
		case <-in.ended:
			continue
		case <-ctx.Done(): // it may be warmed up by now, for however long
		case <-limit.C:
			limit.Reset(0) // for the others too
		}
		in.doom()
		<-in.ended
	}
	m.mu.Lock()
	m.starting = nil
	m.mu.Unlock()
	name := instances[0].name
	var failed *startFailure
	if errors.As(failure, &failed) {
		name = failed.instance
	}
	return m.startError(failure, name)
}

// prepare makes the instances.
func (m *Model) prepare(config *kserve.ModelConfig, json []byte, events backend.Events) error {
	overlap, err := asyncOverlap(config)
	if err != nil {
		return err
	}
	instances, err := m.makeInstances(config, json)
	if err != nil {
		return err
	}
	if m.primed == nil {
		if err := m.check(instances[0].name); err != nil {
			return err
		}
	} else {
		m.primed.json = json
		instances[0] = m.primed // of the same name: a model does not decide where it is placed
	}
	m.config, m.events, m.overlap = config, events, overlap
	m.setInstances(instances)
	return nil
}

// checkLink refuses a model file that is a link out of the repository: who may
// write there must not decide which code runs here. Directories may be links.
func (m *Model) checkLink() error {
	if m.env.Runtime != "" {
		return nil // the operator's own
	}
	real, err := filepath.EvalSymlinks(m.path)
	if err != nil {
		return infer.Errorf(infer.Internal, "model file of '%s': %v", m.env.Name, err)
	}
	for _, dir := range []string{filepath.Dir(m.env.Directory), m.env.Directory, filepath.Dir(m.path)} {
		root, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if inside, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(inside) {
			return nil
		}
	}
	return infer.Errorf(infer.InvalidArg, "'%d/%s' of model '%s' is a link that leaves the repository", m.env.Version, filepath.Base(m.path), m.env.Name)
}

// startFailure says which instance did not start.
type startFailure struct {
	instance string
	err      error
}

func (e *startFailure) Error() string { return "start instance " + e.instance + ": " + e.err.Error() }
func (e *startFailure) Unwrap() error { return e.err }

// startError turns the reason of a failed start into what clients see: the
// model's own error, or Triton's text with that name, and the diagnosis in the
// log.
func (m *Model) startError(err error, name string) error {
	var own *infer.Error
	if errors.As(err, &own) {
		return own
	}
	log := m.log
	var failed *startFailure
	if errors.As(err, &failed) {
		log = log.With().Str("instance", failed.instance).Logger()
	}
	log.Error().Err(err).Msg("stub did not become ready")
	if tail := stderrOf(err); tail != "" {
		log.Error().Msg("last lines of the stub:\n" + tail)
	}
	return unhealthy(name)
}

// decoupled reports whether the model may send any number of responses.
func (m *Model) decoupled() bool { return m.config.GetModelTransactionPolicy().GetDecoupled() }

// overlapParameter is the parameter of a model's config that lets so many calls
// of an asynchronous execute overlap in each instance of a model that is not
// decoupled.
const overlapParameter = "ASYNC_EXECUTE_OVERLAP"

// maxOverlap bounds it.
const maxOverlap = 4096

func asyncOverlap(config *kserve.ModelConfig) (int, error) {
	p, ok := config.GetParameters()[overlapParameter]
	if !ok {
		return 1, nil
	}
	n, err := strconv.Atoi(p.GetStringValue())
	if err != nil || n < 1 || n > maxOverlap {
		return 0, infer.Errorf(infer.InvalidArg, "parameter '%s' of model '%s' is %q, want a number from 1 to %d",
			overlapParameter, config.GetName(), p.GetStringValue(), maxOverlap)
	}
	return n, nil
}

// InitializeTimeout implements backend.Patient.
func (m *Model) InitializeTimeout() time.Duration { return m.settings.InitializeTimeout }

// UnloadTimeout implements backend.Patient.
func (m *Model) UnloadTimeout() time.Duration { return m.settings.UnloadTimeout }

// Close implements backend.Model.
func (m *Model) Close(ctx context.Context) error {
	m.dismiss(ctx)
	if m.cancel == nil {
		return nil
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	ended := make(chan struct{})
	boundary.Go(m.log, boundary.Life, func() {
		defer close(ended)
		m.running.Wait()
	}, nil)
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	all := slices.Concat(m.instances, m.starting, m.leaving)
	m.mu.Unlock()
	for _, in := range all {
		in.doom()
	}
	<-ended
	return fmt.Errorf("its stubs were killed: %w", context.Cause(ctx))
}

// doom ends the present stub, and one that is just becoming ready.
func (in *Instance) doom() {
	in.doomed.Store(true)
	in.kill()
}

// kill ends the present stub, if there is one.
func (in *Instance) kill() {
	if l := in.current.Load(); l != nil {
		l.process.kill()
	}
}

// tensorNames lists the names that INITIALIZE announces. What the scheduler adds
// to the requests of a sequence, and takes from its responses, is among them.
func (m *Model) tensorNames() (inputs, outputs []string) {
	for _, input := range m.config.GetInput() {
		inputs = append(inputs, input.GetName())
	}
	for _, extra := range m.config.GetBatchInput() { // of stacked batches
		inputs = append(inputs, extra.GetTargetName()...)
	}
	for _, output := range m.config.GetOutput() {
		outputs = append(outputs, output.GetName())
	}
	sequences := m.config.GetSequenceBatching()
	for _, control := range sequences.GetControlInput() {
		inputs = append(inputs, control.GetName())
	}
	for _, state := range sequences.GetState() {
		inputs = append(inputs, state.GetInputName())
		if !slices.Contains(outputs, state.GetOutputName()) {
			outputs = append(outputs, state.GetOutputName())
		}
	}
	for _, name := range warmupNames(m.config) {
		if !slices.Contains(inputs, name) {
			inputs = append(inputs, name)
		}
	}
	return inputs, outputs
}

// initializeBody is the body of INITIALIZE.
type initializeBody struct {
	Args      map[string]string `msgpack:"args"`
	Names     []string          `msgpack:"names"`
	Inputs    int               `msgpack:"inputs"`
	Outputs   int               `msgpack:"outputs"`
	Decoupled bool              `msgpack:"decoupled"`
	modelBody

	WindowResponses int   `msgpack:"window_responses"`
	WindowBytes     int64 `msgpack:"window_bytes"`
	AsyncOverlap    int   `msgpack:"async_overlap"`
}

// initialize makes the body of INITIALIZE for a life.
func (in *Instance) initialize(l *life) *initializeBody {
	m := in.model
	return &initializeBody{
		Args: map[string]string{
			"model_config":             string(in.json),
			"model_instance_kind":      in.kind,
			"model_instance_name":      in.name,
			"model_instance_device_id": in.device,
			"model_repository":         m.env.Directory,
			"model_version":            strconv.FormatInt(m.env.Version, 10),
			"model_name":               m.env.Name,
		},
		Names:     l.down.list,
		Inputs:    l.down.inputs,
		Outputs:   l.down.outputs,
		Decoupled: l.decoupled,
		modelBody: m.body(l),

		WindowResponses: windowResponses,
		WindowBytes:     windowBytes,
		AsyncOverlap:    m.overlap,
	}
}
