package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cores"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"google.golang.org/protobuf/proto"
)

// makeInstances makes the instances of the config's groups, which are told json.
func (m *Model) makeInstances(config *kserve.ModelConfig, json []byte) ([]*Instance, error) {
	var instances []*Instance
	for _, group := range config.GetInstanceGroup() {
		kind, devices := "CPU", []string{"0"}
		switch group.GetKind() {
		case kserve.ModelInstanceGroup_KIND_GPU:
			kind, devices = "GPU", nil
			for _, gpu := range group.GetGpus() {
				devices = append(devices, strconv.Itoa(int(gpu)))
			}
		case kserve.ModelInstanceGroup_KIND_MODEL:
			kind = "MODEL"
		}
		if n := int64(group.GetCount()) * int64(len(devices)); int64(len(instances))+n > int64(m.supervisor.limits.Instances) {
			return nil, infer.Errorf(infer.InvalidArg, "instance group %s of model %s asks for %d instances, a model has %d at most", group.GetName(), m.env.Name, n, m.supervisor.limits.Instances)
		}
		for i := range group.GetCount() {
			for _, device := range devices {
				name := fmt.Sprintf("%s_%d", group.GetName(), i)
				if err := validateInstanceName(name); err != nil {
					return nil, err
				}
				on, err := m.supervisor.policies.Of(cores.PolicyName(group, device))
				if err != nil {
					return nil, err
				}
				in := &Instance{
					model: m, name: name, kind: kind, device: device, group: group, json: json, cores: on,
					log: m.log.With().Str("instance", name).Logger(),
				}
				if kind == "GPU" {
					in.gpu = 1 + in.Device()
				}
				instances = append(instances, in)
			}
		}
	}
	if len(instances) == 0 {
		return nil, infer.Errorf(infer.InvalidArg, "must specify one or more 'instance group's for %s", m.env.Name)
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
func (in *Instance) Group() *kserve.ModelInstanceGroup { return in.group }

// Device implements backend.Placed.
func (in *Instance) Device() int32 {
	n, err := strconv.ParseInt(in.device, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// signature is what two instances have in common that can stand for each other.
func (in *Instance) signature() string {
	group := proto.Clone(in.group).(*kserve.ModelInstanceGroup)
	group.Name, group.Count = "", 0
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(group)
	if err != nil {
		return in.name // it is like no other
	}
	return in.device + ":" + string(text)
}

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

// match compares the present instances with the wanted ones: what
// has both name and signature stays before what has the signature alone. kept
// are in the order of wanted, with nil where one is missing.
func match(present, wanted []*Instance) (kept, surplus []*Instance) {
	kept = make([]*Instance, len(wanted))
	left := slices.Clone(present)
	for _, byName := range []bool{true, false} {
		for i, w := range wanted {
			if kept[i] != nil {
				continue
			}
			signature := w.signature()
			at := slices.IndexFunc(left, func(in *Instance) bool {
				return in.signature() == signature && (in.name == w.name || !byName)
			})
			if at >= 0 {
				kept[i] = left[at]
				left = slices.Delete(left, at, at+1)
			}
		}
	}
	return kept, left
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
	in.doom()
	<-in.ended
	return fmt.Errorf("the stub of '%s' was killed: %w", in.name, context.Cause(ctx))
}

// forget drops an instance that has ended.
func (m *Model) forget(in *Instance) {
	m.mu.Lock()
	m.leaving = slices.DeleteFunc(m.leaving, func(other *Instance) bool { return other == in })
	m.mu.Unlock()
}
