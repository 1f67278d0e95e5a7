package linked

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// Model is one version of a model. It implements backend.Model.
type Model struct {
	backend *Backend
	env     backend.Env
	engine  *engine.Model
	metrics CustomMetrics // nil without metrics

	events backend.Events // set by Start
	made   bool           // Complete or Start of engine has returned; used by one goroutine at a time
	failed error          // of the attempt to make it for its strategy

	// Set by Start and Grow: whether the model has started, and its config.
	started bool
	final   *kserve.ModelConfig
	json    []byte

	mu        sync.Mutex
	instances []*Instance // present, in the order of the config
	leaving   []*Instance // that are to be ended
	closed    bool
}

// Capabilities implements backend.Model.
func (m *Model) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{
		Exchanger: m, Strategy: m.strategy, AsksReady: m.asksReady, ReportMemory: m.engine.ReportedMemory,
		UnloadTimeout: m.backend.config.UnloadTimeout,
	}
}

// Instance is one instance of a model.
type Instance struct {
	*engine.Instance
	placement placement.Placement
}

// Capabilities implements backend.Instance.
func (in *Instance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: in, GroupMember: in}
}

// Group implements backend.GroupMember.
func (in *Instance) Group() *kserve.ModelInstanceGroup { return in.placement.Group }

// Device implements backend.GroupMember.
func (in *Instance) Device() int32 { return in.placement.Number() }

// AutoComplete implements backend.Model.
func (m *Model) AutoComplete(ctx context.Context, config []byte) ([]byte, error) {
	answer, err := m.engine.Complete(ctx, config)
	m.made = err == nil
	return answer, err
}

// strategy returns the author's batching strategy. If the author's model does not exist yet, it is
// created, but only for dynamic_batching, because no other scheduler has strategies.
func (m *Model) strategy() backend.Strategy {
	if !m.made {
		if m.env.Config.GetDynamicBatching() == nil {
			return nil
		}
		json, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.env.Config)
		if err == nil {
			err = m.engine.Start(context.Background(), m.env.Config, json)
		}
		if m.failed = err; err != nil {
			return nil // Start fails for the same reason
		}
		m.made = true
	}
	return m.engine.Strategy()
}

// Start implements backend.Model.
func (m *Model) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	m.events = events
	err := m.failed
	if err == nil {
		err = m.engine.Start(ctx, config, json)
	}
	if err == nil {
		var wanted []*Instance
		if wanted, err = m.planned(config); err == nil {
			if err = m.bringUp(ctx, wanted); err == nil {
				m.set(wanted)
				m.started, m.final, m.json = true, config, json
				return nil
			}
		}
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	return err
}

// planned creates the instances of a config, without the author's.
func (m *Model) planned(config *kserve.ModelConfig) ([]*Instance, error) {
	placements, err := placement.Of(config, m.env.Name, m.backend.config.MaxInstances)
	if err != nil {
		return nil, err
	}
	list := make([]*Instance, len(placements))
	for i, at := range placements {
		if _, err := m.backend.config.Policies.Of(placement.PolicyName(at.Group, at.Device)); err != nil {
			return nil, err
		}
		list[i] = &Instance{placement: at}
	}
	return list, nil
}

// bringUp creates the author's instances and reports them, all or none.
func (m *Model) bringUp(ctx context.Context, wanted []*Instance) error {
	bound, cancel := context.WithCancelCause(ctx) // the first failure ends the others, and is their cause
	defer cancel(nil)
	var running sync.WaitGroup
	for _, in := range wanted {
		if !m.backend.parallel() { // in the order of the config
			if err := m.open(bound, in); err != nil {
				cancel(err)
				break
			}
			continue
		}
		running.Go(panics.Guard(m.backend.config.Log, panics.Life, func() {
			if err := m.open(bound, in); err != nil {
				cancel(err)
			}
		}, func(err error) { cancel(err) }))
	}
	running.Wait()
	failure := context.Cause(bound)
	if failure != nil {
		if err := m.closeAll(ctx, wanted); err != nil {
			m.backend.config.Log.Error().Err(err).Str("model", m.env.Name).Msg("a failed start left instances behind")
		}
		return failure
	}
	for _, in := range wanted {
		if !in.placement.Group.GetPassive() {
			m.events.Available(in)
		}
	}
	return nil
}

// open creates the author's instance. The engine creates them one after another, unless the backend
// allows otherwise.
func (m *Model) open(ctx context.Context, in *Instance) error {
	at, b := &in.placement, m.backend
	b.config.Log.Info().Str("model", m.env.Name).Int64("version", m.env.Version).Str("instance", at.Name).
		Msgf("TRITONBACKEND_ModelInstanceInitialize: %s (%s device %s)", at.Name, at.Kind, at.Device)
	var secondary []sdk.SecondaryDevice
	for _, d := range at.Group.GetSecondaryDevices() {
		secondary = append(secondary, sdk.SecondaryDevice{Kind: d.GetKind().String(), Device: d.GetDeviceId()})
	}
	made, err := m.engine.Instance(ctx, engine.InstanceSpec{
		Name: at.Name, Kind: at.Kind, Device: at.Number(), Profiles: at.Group.GetProfile(), SecondaryDevices: secondary,
		Passive: at.Group.GetPassive(), HostPolicy: b.config.Policies.JSON(placement.PolicyName(at.Group, at.Device)),
	})
	in.Instance = made
	return err
}

// closeAll concurrently closes the created instances.
func (m *Model) closeAll(ctx context.Context, list []*Instance) error {
	failures := make([]error, len(list))
	var running sync.WaitGroup
	for i, in := range list {
		if in.Instance == nil {
			continue
		}
		running.Go(panics.Guard(m.backend.config.Log, panics.Life, func() { failures[i] = in.Close(ctx) }, func(err error) { failures[i] = err }))
	}
	running.Wait()
	return errors.Join(failures...)
}

func (m *Model) set(instances []*Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instances = instances
}

// list returns the current instances.
func (m *Model) list() []*Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instances
}

// Instances implements backend.Model.
func (m *Model) Instances() []backend.Instance { return backend.Instances(m.list()) }

// lost tells the scheduler that the instance will not return.
func (m *Model) lost(in *Instance) {
	if !in.placement.Group.GetPassive() {
		m.events.Lost(in, true)
	}
}

// Close implements backend.Model. The author's model is closed after all of its instances; later,
// if one does not return.
func (m *Model) Close(ctx context.Context) error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	all := append(append([]*Instance(nil), m.instances...), m.leaving...)
	m.mu.Unlock()
	if again {
		return nil
	}
	err := m.closeAll(ctx, all)
	for _, in := range all {
		m.lost(in)
	}
	m.end()
	return err
}

// end closes the author's model when nothing of its instances is left; later, if a function of the
// author's does not return.
func (m *Model) end() {
	ended := m.engine.Ended()
	select {
	case <-ended:
		m.endNow()
	default:
		panics.Go(m.backend.config.Log, panics.Life, func() {
			<-ended
			m.endNow()
		}, nil)
	}
}

// endNow closes the author's model. Metrics of a model that did not start are not kept.
func (m *Model) endNow() {
	m.engine.Close()
	if m.metrics != nil {
		m.metrics.End(m.started)
	}
	m.backend.count(-1)
}

// asksReady reports whether any of the author's instances reports its own readiness.
func (m *Model) asksReady() bool {
	for _, in := range m.list() {
		if in.AsksReady() {
			return true
		}
	}
	return false
}

// closing returns the error for an exchange of a model that is being unloaded.
func (m *Model) closing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return infer.Errorf(infer.Unavailable, "model '%s' is being unloaded", m.env.Name)
	}
	return nil
}
