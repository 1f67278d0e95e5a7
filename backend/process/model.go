package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// Model is one version of a model. It implements backend.Model.
type Model struct {
	supervisor *Supervisor
	env        backend.Env
	settings   *Config
	program    Program
	log        zerolog.Logger
	// held counts and limits the memory of all lives together. mostBlocks is the limit of blocks, 0
	// without one.
	held       budget.Holder
	mostBlocks int64
	copied     atomic.Int64 // bytes that its stubs have copied since one of them returned a kept block

	// Set by Start before the instances run. Its instance groups may be out of date.
	config *kserve.ModelConfig
	events backend.Events

	// primed is the instance whose stub has completed the config, between AutoComplete and Start.
	primed *Instance

	run     context.Context // of all instances
	cancel  context.CancelFunc
	running sync.WaitGroup
	release sync.Once // of the program

	mu        sync.Mutex
	instances []*Instance
	starting  []*Instance // the latest launched ones; part of instances when all are ready
	leaving   []*Instance // instances that are to be ended
	closed    bool        // no further instance is started
	lives     uint32      // stub processes so far, of all instances
	shared    map[hostKey]*sharedHost
	said      map[string]bool
}

// Capabilities implements backend.Model.
func (m *Model) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{
		Mapper: m, Exchanger: m, AsksReady: m.asksReady, ReportMemory: m.reportMemory,
		InitializeTimeout: m.settings.InitializeTimeout, UnloadTimeout: m.settings.UnloadTimeout,
	}
}

// Start implements backend.Model.
func (m *Model) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	if err := m.prepare(ctx, config, json, events); err != nil {
		m.dismiss(ctx)
		return err
	}
	m.primed = nil
	m.run, m.cancel = context.WithCancel(context.Background())
	return m.launch(ctx, m.list())
}

// launch starts the keepers of instances and returns when all are ready. If it fails, all of these
// have ended; when ctx ends, the remaining ones are killed.
func (m *Model) launch(ctx context.Context, instances []*Instance) error {
	outcomes := make(chan error, len(instances)) // bound: the instances
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return infer.Errorf(infer.Unavailable, "model '%s' is being unloaded", m.env.Name)
	}
	m.starting = instances
	for _, in := range instances {
		m.log.Info().Msgf("TRITONBACKEND_ModelInstanceInitialize: %s (%s device %s)", in.name, in.placement.Kind, in.placement.Device)
		run, cancel := context.WithCancel(m.run)
		in.cancel, in.ended = cancel, make(chan struct{})
		m.running.Go(panics.Guard(m.log, panics.Life, func() {
			defer close(in.ended)
			var once sync.Once
			started := func(err error) {
				if err != nil {
					err = &startFailure{instance: in.name, err: err}
				}
				once.Do(func() { outcomes <- err })
			}
			panics.Guard(in.log, panics.Life, func() { in.Run(run, started) }, func(err error) {
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
		failure = m.admit(instances)
	}
	if failure == nil {
		return nil
	}
	for _, in := range instances {
		in.cancel()
	}
	limit := panics.NewLimit(m.settings.UnloadTimeout)
	defer limit.Stop()
	for _, in := range instances {
		select {
		case <-in.ended:
			continue
		case <-ctx.Done(): // it may be in a warm-up of any length
		case <-limit.C:
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

// admit rejects instances on GPUs whose memory in use exceeds the operator's limit. It is called
// after the instances have allocated their memory.
func (m *Model) admit(instances []*Instance) error {
	for _, in := range instances {
		if in.gpu > 0 && m.supervisor.admit != nil && !m.supervisor.admit(in.gpu-1) {
			return infer.Errorf(infer.Unavailable, "can not create model '%s': memory limit set for GPU %d has exceeded, model loading is rejected.", in.name, in.gpu-1)
		}
	}
	return nil
}

// prepare creates the instances.
func (m *Model) prepare(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	if err := m.program.Configure(config); err != nil {
		return err
	}
	instances, err := m.makeInstances(config, json)
	if err != nil {
		return err
	}
	if m.primed == nil {
		if err := m.program.Check(ctx, instances[0].name); err != nil {
			return err
		}
	} else {
		m.primed.json = json
		instances[0] = m.primed // it has the same name: a model does not choose its placement
	}
	m.config, m.events = config, events
	m.setInstances(instances)
	return nil
}

// startFailure names the instance that did not start.
type startFailure struct {
	instance string
	err      error
}

func (e *startFailure) Error() string { return "start instance " + e.instance + ": " + e.err.Error() }
func (e *startFailure) Unwrap() error { return e.err }

// startError turns the reason for a failed start into an error for clients: the model's own error,
// or Triton's text with the instance's name and the missing resource. The diagnosis goes to the
// log.
func (m *Model) startError(err error, name string) error {
	log := m.log
	var failed *startFailure
	if errors.As(err, &failed) {
		log = log.With().Str("instance", failed.instance).Logger()
	}
	var own *infer.Error
	if !errors.As(err, &own) {
		log.Error().Err(err).Msg("process did not become ready")
	}
	if tail := stderrOf(err); tail != "" {
		log.Error().Msg("last lines of the process:\n" + tail)
	}
	if own != nil {
		return own
	}
	text := m.program.Text(ProcessLost, name)
	if lacked := shortage(err); lacked != "" {
		text += " " + lacked
	}
	shown := &infer.Error{Code: infer.Internal, Message: text}
	if failed != nil {
		shown.Detail = text + " Cause: " + strings.TrimPrefix(failed.err.Error(), errNeverReady.Error()+": ")
	}
	return shown
}

// decoupled reports whether the model may send any number of responses.
func (m *Model) decoupled() bool { return m.config.GetModelTransactionPolicy().GetDecoupled() }

// Close implements backend.Model.
func (m *Model) Close(ctx context.Context) error {
	defer m.release.Do(m.program.Close)
	m.dismiss(ctx)
	if m.cancel == nil {
		return nil
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	ended := make(chan struct{})
	panics.Go(m.log, panics.Life, func() {
		defer close(ended)
		m.running.Wait()
	}, nil)
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	all := slices.Concat(m.instances, m.starting, m.leaving) // bound: the instances
	m.mu.Unlock()
	if m.settles(all, ended) {
		return fmt.Errorf("its stubs had requests left open: %w", context.Cause(ctx))
	}
	for _, in := range all {
		in.doom()
	}
	<-ended
	return fmt.Errorf("its stubs were killed: %w", context.Cause(ctx))
}

// settles makes stopping instances finalize although requests are open. It reports whether all have
// ended within Config.Grace.
func (m *Model) settles(instances []*Instance, ended <-chan struct{}) bool {
	if m.settings.Grace <= 0 {
		return false
	}
	for _, in := range instances {
		if l := in.current.Load(); l != nil {
			l.hasten.Do(func() { close(l.hasty) })
		}
	}
	limit := panics.NewLimit(m.settings.Grace)
	defer limit.Stop()
	select {
	case <-ended:
		return true
	case <-limit.C:
		return false
	}
}

// doom ends the present stub, if any, even while it is becoming ready.
func (in *Instance) doom() {
	if !in.doomed.Swap(true) && in.doomsday != nil {
		close(in.doomsday)
	}
	if l := in.current.Load(); l != nil {
		l.kill()
	}
}

// tensorNames lists the names for INITIALIZE. They include the tensors that the scheduler adds to
// requests of a sequence and removes from its responses.
func (m *Model) tensorNames() (inputs, outputs []string) { // bound: the config
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

// initialization is the part of INITIALIZE that does not depend on the program.
func (l *life) initialization() Initialization {
	names := l.encoder.Names
	return Initialization{
		Tensors:      Tensors{Names: names.List(), Inputs: names.Inputs(), Outputs: names.Outputs(), Decoupled: l.decoupled},
		Surroundings: l.surroundings(),
		Window:       Window{Responses: windowResponses, Bytes: windowBytes},
	}
}

func (l *life) surroundings() Surroundings {
	m := l.in.model
	return Surroundings{
		Log:     m.supervisor.levels(),
		Spin:    max(m.settings.Spin.Microseconds(), 0),
		Default: m.settings.DefaultBytes,
		Growth:  m.settings.GrowthBytes,
		Max:     l.channel.MaxArena(),
	}
}

func (in *Instance) spec() InstanceSpec {
	return InstanceSpec{
		Instance: in.name, Kind: in.placement.Kind, Device: in.placement.Device, Config: in.json, Group: in.placement.Group,
		HostPolicy: in.model.supervisor.policies.JSON(placement.PolicyName(in.placement.Group, in.placement.Device)),
	}
}

// makeInstances creates the instances of the config's groups. json is the config for their stubs.
func (m *Model) makeInstances(config *kserve.ModelConfig, json []byte) ([]*Instance, error) {
	placements, err := placement.Of(config, m.env.Name, m.supervisor.limits.Instances)
	if err != nil {
		return nil, err
	}
	instances := make([]*Instance, len(placements)) // bound: the instances
	for i, at := range placements {
		if err := validateInstanceName(at.Name); err != nil {
			return nil, err
		}
		on, err := m.supervisor.policies.Of(placement.PolicyName(at.Group, at.Device))
		if err != nil {
			return nil, err
		}
		instances[i] = &Instance{
			model: m, name: at.Name, doomsday: make(chan struct{}), placement: at, gpu: at.GPU(), json: json, cores: on,
			log: m.log.With().Str("instance", at.Name).Logger(),
		}
	}
	return instances, nil
}

// warmupNames lists the inputs of a config's warm-up samples, ascending.
func warmupNames(config *kserve.ModelConfig) []string {
	names := make(map[string]bool)
	for _, sample := range config.GetModelWarmup() {
		for name := range sample.GetInputs() {
			names[name] = true // bound: the samples of the config
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Group implements backend.GroupMember.
func (in *Instance) Group() *kserve.ModelInstanceGroup { return in.placement.Group }

// Device implements backend.GroupMember.
func (in *Instance) Device() int32 { return in.placement.Number() }

// list returns the current instances.
func (m *Model) list() []*Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instances
}

// setInstances replaces the list of the instances. A list is never modified.
func (m *Model) setInstances(instances []*Instance) {
	m.mu.Lock()
	m.instances, m.starting = instances, nil
	m.mu.Unlock()
}

// Instances implements backend.Model.
func (m *Model) Instances() []backend.Instance { return backend.Instances(m.list()) }

// match compares the present instances with the wanted ones. kept is in the order of wanted, with
// nil where an instance is missing.
func match(present, wanted []*Instance) (kept, surplus []*Instance) {
	return placement.Match(present, wanted, func(in *Instance) *placement.Placement { return &in.placement })
}

// Grow implements backend.Exchanger.
func (m *Model) Grow(ctx context.Context, config *kserve.ModelConfig, json []byte) (added, surplus []backend.Instance, err error) {
	wanted, err := m.makeInstances(config, json)
	if err != nil {
		return nil, nil, err
	}
	all, left := match(m.list(), wanted)
	var fresh []*Instance
	for i, in := range all {
		if in == nil {
			all[i] = wanted[i]
			fresh = append(fresh, wanted[i]) // bound: the instances
		}
	}
	if len(fresh) > 0 {
		if err := m.program.Check(ctx, fresh[0].name); err != nil {
			return nil, nil, err
		}
		if err := m.launch(ctx, fresh); err != nil {
			return nil, nil, err
		}
	}
	m.setInstances(append(all, left...)) // bound: the instances
	return backend.Instances(fresh), backend.Instances(left), nil
}

// Leave implements backend.Exchanger.
func (m *Model) Leave(instance backend.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.IndexFunc(m.instances, func(in *Instance) bool { return in == instance }); at >= 0 {
		m.leaving = append(m.leaving, m.instances[at])                   // bound: the instances
		m.instances = slices.Delete(slices.Clone(m.instances), at, at+1) // bound: the instances
	}
}

// End implements backend.Exchanger.
func (m *Model) End(ctx context.Context, instance backend.Instance) error {
	in, ok := instance.(*Instance)
	if !ok || in.model != m {
		return fmt.Errorf("instance '%s' does not belong to model '%s'", instance.Name(), m.env.Name)
	}
	m.Leave(in)
	defer m.forget(in)
	in.cancel()
	select {
	case <-in.ended:
		return nil
	case <-ctx.Done():
	}
	if m.settles([]*Instance{in}, in.ended) {
		return fmt.Errorf("the process of '%s' had requests left open: %w", in.name, context.Cause(ctx))
	}
	in.doom()
	<-in.ended
	return fmt.Errorf("the process of '%s' was killed: %w", in.name, context.Cause(ctx))
}

// forget drops an instance that has ended.
func (m *Model) forget(in *Instance) {
	m.mu.Lock()
	m.leaving = slices.DeleteFunc(m.leaving, func(other *Instance) bool { return other == in })
	m.mu.Unlock()
}
