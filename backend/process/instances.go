package process

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process/cores"
	"github.com/nereid-serving/nereid/kserve"
)

// makeInstances makes the instances of the config's groups, which are told json.
func (m *Model) makeInstances(config *kserve.ModelConfig, json []byte) ([]*Instance, error) {
	placed, err := placement.Of(config, m.env.Name, m.supervisor.limits.Instances)
	if err != nil {
		return nil, err
	}
	instances := make([]*Instance, len(placed))
	for i, at := range placed {
		if err := validateInstanceName(at.Name); err != nil {
			return nil, err
		}
		on, err := m.supervisor.policies.Of(cores.PolicyName(at.Group, at.Device))
		if err != nil {
			return nil, err
		}
		instances[i] = &Instance{
			model: m, name: at.Name, placed: at, gpu: at.GPU(), json: json, cores: on,
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
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Group implements backend.Placed.
func (in *Instance) Group() *kserve.ModelInstanceGroup { return in.placed.Group }

// Device implements backend.Placed.
func (in *Instance) Device() int32 { return in.placed.Number() }

// list returns the instances that are there.
func (m *Model) list() []*Instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instances
}

// setInstances replaces the list of the instances, which is not changed itself.
func (m *Model) setInstances(instances []*Instance) {
	m.mu.Lock()
	m.instances, m.starting = instances, nil
	m.mu.Unlock()
}

// Instances implements backend.Model.
func (m *Model) Instances() []backend.Instance {
	present := m.list()
	list := make([]backend.Instance, len(present))
	for i, in := range present {
		list[i] = in
	}
	return list
}

// match compares the present instances with the wanted ones. kept are in the order of wanted, with nil where one is missing.
func match(present, wanted []*Instance) (kept, surplus []*Instance) {
	return placement.Match(present, wanted, func(in *Instance) *placement.Placement { return &in.placed })
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
			fresh = append(fresh, wanted[i])
			added = append(added, wanted[i])
		}
	}
	for _, in := range left {
		surplus = append(surplus, in)
	}
	if len(fresh) > 0 {
		if err := m.program.Check(ctx, fresh[0].name); err != nil {
			return nil, nil, err
		}
		if err := m.launch(ctx, fresh); err != nil {
			return nil, nil, err
		}
	}
	m.setInstances(append(all, left...))
	return added, surplus, nil
}

// Leave implements backend.Exchanger.
func (m *Model) Leave(instance backend.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.IndexFunc(m.instances, func(in *Instance) bool { return in == instance }); at >= 0 {
		m.leaving = append(m.leaving, m.instances[at])
		m.instances = slices.Delete(slices.Clone(m.instances), at, at+1)
	}
}

// End implements backend.Exchanger.
func (m *Model) End(ctx context.Context, instance backend.Instance) error {
	in, ok := instance.(*Instance)
	if !ok || in.model != m {
		return fmt.Errorf("instance '%s' is none of model '%s'", instance.Name(), m.env.Name)
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
