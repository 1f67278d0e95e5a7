package linked

import (
	"context"
	"fmt"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/kserve"
)

// Grow implements backend.Exchanger. The model and its instances see the new config afterwards.
func (m *Model) Grow(ctx context.Context, config *kserve.ModelConfig, json []byte) (added, surplus []backend.Instance, err error) {
	if err := m.closing(); err != nil {
		return nil, nil, err
	}
	wanted, err := m.planned(config)
	if err != nil {
		return nil, nil, err
	}
	all, left := placement.Match(m.list(), wanted, func(in *Instance) *placement.Placement { return &in.placement })
	var fresh []*Instance
	for i, in := range all {
		if in == nil {
			all[i] = wanted[i]
			fresh = append(fresh, wanted[i])
		}
	}
	if err := m.engine.Start(ctx, config, json); err != nil {
		return nil, nil, err
	}
	if err := m.bringUp(ctx, fresh); err != nil {
		_ = m.engine.Start(ctx, m.final, m.json) // the model is there: only its config is set
		return nil, nil, err
	}
	m.final, m.json = config, json
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.instances = append(all, left...)
	}
	m.mu.Unlock()
	if closed { // Close has not seen these
		err := m.closeAll(ctx, fresh)
		if err == nil {
			err = m.closing()
		}
		return nil, nil, err
	}
	return backend.Instances(fresh), backend.Instances(left), nil
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
	if !ok {
		return fmt.Errorf("instance '%s' does not belong to model '%s'", instance.Name(), m.env.Name)
	}
	m.Leave(in)
	err := in.Close(ctx)
	m.lost(in)
	if err == nil {
		m.mu.Lock()
		m.leaving = slices.DeleteFunc(m.leaving, func(other *Instance) bool { return other == in })
		m.mu.Unlock()
	}
	return err
}
