package version

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// Exchange replaces instances of a serving version. The new instances are up and warm, and wait.
// Its owner calls Commit or Drop once. A nil Exchange does nothing.
type Exchange struct {
	before, after  *Version
	exchanger      backend.Exchanger
	added, surplus []backend.Instance
}

// After returns the version after Commit. The owner makes requests find it first.
func (e *Exchange) After() *Version { return e.after }

// Regroup prepares a serving version for a description that differs only in its instances, and
// perhaps in its version policy. can is false if the version must be loaded again. At most one
// exchange of a version runs at a time.
func (v *Version) Regroup(ctx context.Context, d *repository.Description) (e *Exchange, can bool, err error) {
	if err := d.Check(); err != nil {
		return nil, true, err
	}
	c := config.Clone(v.info.Config)
	described := config.Clone(d.Config)
	c.InstanceGroup, c.VersionPolicy = described.InstanceGroup, described.VersionPolicy
	return v.exchange(ctx, c)
}

// Resize prepares a serving version for another count of instances in a group; "" names the only
// group. The error is for clients.
func (v *Version) Resize(ctx context.Context, group string, count int32) (*Exchange, error) {
	c := config.Clone(v.info.Config)
	g, err := groupNamed(c, group)
	if err != nil {
		return nil, err
	}
	g.Count = count
	e, can, err := v.exchange(ctx, c)
	if err == nil && !can {
		err = invalid("instances of model '%s': they cannot be changed while it serves", v.info.Name)
	}
	return e, err
}

// groupNamed finds a group of a config.
func groupNamed(config *kserve.ModelConfig, name string) (*kserve.ModelInstanceGroup, error) {
	groups := config.GetInstanceGroup()
	if len(groups) == 0 {
		return nil, invalid("instances of model '%s': it has none", config.GetName())
	}
	if name == "" && len(groups) == 1 {
		return groups[0], nil
	}
	var names []string // bound: the config
	for _, g := range groups {
		if g.GetName() == name {
			return g, nil
		}
		names = append(names, "'"+g.GetName()+"'")
	}
	found := "missing"
	if name != "" {
		found = strconv.Quote(infer.Cut(name, budget.MaxName))
	}
	return nil, invalid("instances of model '%s': 'group' is %s, want %s", config.GetName(), found, strings.Join(names, " or "))
}

// exchange prepares the instances of config, which differs from the version's only in its
// instances.
func (v *Version) exchange(ctx context.Context, c *kserve.ModelConfig) (e *Exchange, can bool, err error) {
	exchanger := v.can.Exchanger
	if exchanger == nil || onlyPassive(c.GetInstanceGroup()) {
		return nil, false, nil // requests that wait would wait for ever
	}
	json := config.JSON(c)
	share, err := v.loader.settings.Limiter.Reserve(c.GetInstanceGroup())
	if err != nil {
		return nil, true, err
	}
	e = &Exchange{before: v, after: v.with(c, json, share), exchanger: exchanger}
	if e.added, e.surplus, err = exchanger.Grow(ctx, c, json); err == nil {
		err = v.warmed(ctx)
	}
	if err != nil {
		e.Drop()
		return nil, true, err
	}
	return e, true, nil
}

// with returns a copy of the version with another config.
func (v *Version) with(config *kserve.ModelConfig, json []byte, share *ratelimit.Share) *Version {
	info, after := *v.info, *v
	info.Config, info.JSON = config, json
	after.info, after.share, after.passive = &info, share, false
	return &after
}

// Drop ends the new instances and waits for that. The version stays as it was.
func (e *Exchange) Drop() {
	if e == nil {
		return
	}
	ctx, cancel := e.before.loader.unloading(e.before.model)
	defer cancel()
	waiting := e.before.barrier.Refuse()
	var ends sync.WaitGroup
	for _, in := range e.added {
		ends.Go(panics.Guard(e.before.log, panics.Models, func() { e.end(ctx, in) }, nil))
	}
	ends.Wait()
	for _, in := range waiting { // including instances that have not come up
		e.forget(in)
		e.before.barrier.Forget(in)
	}
	e.after.share.Release()
}

// Commit lets the new instances take work, and ends surplus instances as soon as they are idle.
// Instances without an unanswered request end before Commit returns; left are the names of the
// others.
//
// bound: the instances
func (e *Exchange) Commit() (left []string) {
	if e == nil {
		return nil
	}
	v := e.before
	v.barrier.Admit()
	if len(e.surplus) == 0 {
		v.share.Release()
		return nil
	}
	var more atomic.Int64
	more.Store(int64(len(e.surplus)))
	var idle sync.WaitGroup
	for _, in := range e.surplus {
		e.exchanger.Leave(in)
		known := v.barrier.Retire(in)
		drained := make(chan struct{}) // closed by the scheduler
		answered := true
		if known == nil { // a passive one
			close(drained)
		} else {
			answered = v.scheduler.Retire(known, func() { close(drained) })
		}
		ended := func() {}
		if answered {
			idle.Add(1)
			ended = idle.Done
		} else {
			left = append(left, in.Name())
		}
		v.loader.registry.Ending().Go(e.before.log, panics.Models, func() {
			defer ended()
			defer func() {
				if more.Add(-1) == 0 {
					v.share.Release()
				}
			}()
			e.leave(in, known, drained)
		}, nil)
	}
	idle.Wait()
	return left
}

// leave ends an instance when it is idle, or when its time is over.
func (e *Exchange) leave(in, known backend.Instance, drained <-chan struct{}) {
	v := e.before
	ctx, cancel := v.loader.unloading(v.model)
	defer cancel()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	e.end(ctx, in)
	<-drained // an ended instance has no work
	v.scheduler.Forget(known)
	e.forget(known)
	v.barrier.Forget(in)
}

func (e *Exchange) end(ctx context.Context, in backend.Instance) {
	log := e.before.log.With().Str("model", e.before.info.Name).Int64("version", e.before.info.Version).Str("instance", in.Name()).Logger()
	if err := e.exchanger.End(ctx, in); err != nil {
		log.Error().Msgf("ending the instance: %v", err)
		return
	}
	log.Info().Msg("the instance has ended")
}

// forget drops the data that the layers between the instances and the scheduler keep for one
// instance, given as the scheduler knows it.
func (e *Exchange) forget(in backend.Instance) {
	for ; in != nil; in = in.Capabilities().Wrapped {
		for _, f := range e.before.between {
			f.Forget(in)
		}
	}
}
