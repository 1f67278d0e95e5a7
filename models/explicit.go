package models

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Load loads a model, or reloads it if it has changed since it was read, and returns when it serves
// or the load has failed. The old version serves until then, and beyond if the load fails. Unloaded
// parts of an ensemble are loaded too. config, the JSON of a configuration, replaces that of the
// repository. With files, by their path in the model's directory, nothing of the repository is
// used. A configuration alone is kept: a later load without one leaves the model as it is until its
// directory changes or it is unloaded.
func (r *Registry) Load(ctx context.Context, name, config string, files map[string][]byte) error {
	return r.explicitLoad(ctx, nil, name, config, files)
}

// explicitLoad is Load. up is the load in progress whose code asks for it, or nil.
func (r *Registry) explicitLoad(ctx context.Context, up *loadInProgress, name, text string, files map[string][]byte) error {
	if err := r.checkControl(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	charge, settle := r.loadCharge(name)
	defer settle()
	if err := r.chargeOverride(charge, text); err != nil {
		return err
	}
	o, err := r.override(name, text, files)
	if err != nil {
		r.logNotPolled(repository.Identity{Name: name}, err)
		return errNotPolled(name)
	}
	defer o.drop()
	op := r.begin(name, up)
	defer r.locks.End(op)
	op.Outdates = func(id repository.Identity, s *catalog.Source) bool { return id.Name == name && r.differs(id, s, o) }
	ctx, stop := r.changing(ctx, op)
	defer stop()
	targets := []repository.Identity{{Name: name}}
	if r.config.Repository.Namespacing() && o.upload == nil {
		if err := r.config.Repository.Look(ctx, name); err != nil {
			r.notPolled(repository.Identity{Name: name}, err)
			return errNotPolled(name)
		}
		if targets = r.config.Repository.Find(name); len(targets) == 0 {
			r.config.Log.Error().Msg(repository.NotFound(name).Error())
			return errNotPolled(name)
		}
	}
	sources, held, err := r.gather(ctx, op, targets, o)
	if err != nil {
		return err
	}
	if err := o.keep(text, targets, sources); err != nil {
		return err
	}
	c := &change{Registry: r, op: op, sources: sources, named: repository.SetOf(targets...)}
	return outcome(targets, c.apply(ctx, held))
}

// gather locks models for the operation and reads those whose sources have changed: the
// targets and the models that they are composed of. The error is for clients.
func (r *Registry) gather(ctx context.Context, op *operation, targets []repository.Identity, o override) (sources map[repository.Identity]*catalog.Source, held repository.Set, err error) {
	needed := repository.SetOf(targets...)
	for {
		if held, err = r.hold(ctx, op, needed); err != nil {
			var circle *catalog.CircleError
			if errors.As(err, &circle) {
				return nil, nil, circle
			}
			return nil, nil, infer.Errorf(infer.Unavailable, "failed to load '%s': %v", op.Name(), err)
		}
		problems := make(map[repository.Identity]error)
		sources = make(map[repository.Identity]*catalog.Source) // bound: the models of the repository
		for _, id := range targets {
			s, err := r.read(ctx, id, o)
			if err != nil {
				r.notPolled(id, err)
				return nil, nil, errNotPolled(id.Name)
			}
			if s != nil {
				sources[id] = s // bound: the models of the repository
			}
		}
		r.readNeighbours(ctx, targets, sources, problems)
		r.readComposing(ctx, sources, problems)
		before := len(needed)
		maps.Copy(needed, r.catalog.Claimed(sources)) // bound: the models of the repository
		if len(needed) == before {
			for _, id := range repository.KeysOf(problems).Sorted() {
				r.notPolled(id, problems[id])
			}
			return sources, held, nil
		}
		r.locks.Unlock(op)
	}
}

// checkName refuses names that cannot be those of a model.
func checkName(name string) error {
	if err := checkLength(name); err != nil {
		return err
	}
	switch trimmed := strings.TrimSpace(name); {
	case trimmed == "":
		return infer.Errorf(infer.InvalidArg, "Model name cannot be empty. Please enter a valid name to deploy.")
	case trimmed == "..", strings.Contains(name, "/"):
		return infer.Errorf(infer.InvalidArg, "invalid model name '%s', model name must not contain path traversal characters", name)
	}
	return nil
}

// notPolled logs why a model could not be read, and records the reason for operators.
func (r *Registry) notPolled(id repository.Identity, err error) {
	r.logNotPolled(id, err)
	r.troubles.note(id, err)
}

// logNotPolled logs why a model could not be read.
func (r *Registry) logNotPolled(id repository.Identity, err error) {
	var parse *config.ParseError
	if errors.As(err, &parse) {
		detail := parse.Detail()
		if remedy := parse.Remedy(); remedy != "" {
			detail += "; " + remedy
		}
		r.config.Log.Error().Msgf("%.*s", maxReasonBytes, detail)
	}
	var lookup *repository.LookupError
	if errors.As(err, &lookup) {
		r.config.Log.Error().Msg(err.Error())
		return
	}
	r.config.Log.Error().Msgf("Poll failed for model directory '%s': %.*s", id, maxReasonBytes, infer.Detail(err))
}

func (r *Registry) checkControl() error {
	if err := r.checkExiting(); err != nil {
		return err
	}
	if r.changes.Err() != nil {
		return version.ErrExiting
	}
	if r.config.Unusable {
		return errNotReady
	}
	if !r.config.Explicit {
		r.sayControl.Do(func() {
			mode := "none"
			if r.config.PollInterval > 0 {
				mode = "poll"
			}
			r.config.Log.Warn().Msgf("a load or unload request was rejected because --model-control-mode is %s: start with --model-control-mode=explicit to allow them", mode)
		})
		return infer.Errorf(infer.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
	}
	return nil
}

// Unload takes a model and the ensembles that depend on it out of service, and returns when that
// has begun. Requests in flight are finished. With dependents, the parts of an ensemble are
// unloaded too if they were loaded only for it and nothing else needs them. Unloading a model that
// is not loaded succeeds.
func (r *Registry) Unload(ctx context.Context, name string, dependents bool) error {
	return r.explicitUnload(ctx, nil, name, dependents)
}

func (r *Registry) explicitUnload(ctx context.Context, up *loadInProgress, name string, dependents bool) error {
	if err := r.checkControl(); err != nil {
		return err
	}
	if err := checkLength(name); err != nil {
		return err
	}
	op := r.begin(name, up)
	defer r.locks.End(op)
	op.Outdates = func(repository.Identity, *catalog.Source) bool { return true }
	ctx, stop := r.changing(ctx, op)
	defer stop()
	for {
		needed := r.catalog.UnloadedWith(name, dependents)
		held, err := r.hold(ctx, op, needed)
		if err != nil {
			var circle *catalog.CircleError
			if errors.As(err, &circle) {
				return circle
			}
			return infer.Errorf(infer.Unavailable, "failed to unload '%s': %v", name, err)
		}
		sources := make(map[repository.Identity]*catalog.Source) // bound: the models that are loaded
		more := false
		for id := range r.catalog.UnloadedWith(name, dependents) {
			sources[id] = nil
			more = more || !needed[id]
		}
		if more {
			r.locks.Unlock(op)
			continue
		}
		c := &change{Registry: r, op: op, sources: sources}
		c.apply(ctx, held)
		return nil
	}
}

// RegisterRepository adds a repository in which the directory where has the model name. It loads
// nothing. Errors are *infer.Error with Triton's text, AlreadyExists if the path or the name is
// registered.
func (r *Registry) RegisterRepository(path, where, name string) error {
	if err := r.checkRegistrations("registration"); err != nil {
		return err
	}
	if err := r.config.Repository.Register(path, where, name); err != nil {
		return err
	}
	r.config.Log.Info().Msgf("Model repository registered: %s", path)
	return nil
}

// UnregisterRepository removes a registered repository. Models that were loaded from it stay
// loaded: the caller unloads them first.
func (r *Registry) UnregisterRepository(path string) error {
	if err := r.checkRegistrations("unregistration"); err != nil {
		return err
	}
	if err := r.config.Repository.Unregister(path); err != nil {
		return err
	}
	r.forgetGone()
	r.config.Log.Info().Msgf("Model repository unregistered: %s", path)
	return nil
}

// forgetGone makes the catalog forget unloaded models whose directory is gone. A model that is
// locked by an operation is left to the next time.
func (r *Registry) forgetGone() {
	op := r.begin("", nil)
	defer r.locks.End(op)
	held := r.locks.TryLock(op, r.catalog.Idle())
	// Checked under the lock: a load of the model that began meanwhile waits for it.
	r.catalog.Forget(slices.DeleteFunc(held, func(id repository.Identity) bool {
		return slices.Contains(r.config.Repository.Find(id.Name), id)
	}))
}

func (r *Registry) checkRegistrations(what string) error {
	if err := r.checkExiting(); err != nil {
		return err
	}
	switch {
	case r.changes.Err() != nil:
		return version.ErrExiting
	case r.config.Unusable:
		return errNotReady
	case !r.config.Explicit:
		return infer.Errorf(infer.Unsupported, "repository %s is not allowed if model control mode is not EXPLICIT", what)
	}
	return nil
}

// AwaitUnloaded waits until no version of a model serves, loads or finishes its requests. If ctx
// ends first, it returns the cause.
func (r *Registry) AwaitUnloaded(ctx context.Context, name string) error {
	return r.catalog.AwaitUnloaded(ctx, name)
}

// override holds the parts of a load request that replace those of the repository.
type override struct {
	config *kserve.ModelConfig // nil: the repository's
	upload *copies.Copy        // nil: the repository's
	charge *budget.Shared      // of config, for as long as the models keep it
}

// drop ends the use of the load request.
func (o override) drop() {
	o.upload.Drop()
	o.charge.Drop()
}

// keep charges the memory of the config's copies that the targets keep: the given one, one with
// defaults, and a complete one for each version.
func (o override) keep(text string, targets []repository.Identity, sources map[repository.Identity]*catalog.Source) error {
	for _, id := range targets {
		if s := sources[id]; s != nil {
			if err := o.charge.Take(budget.JSON, int64(2+len(s.Versions))*config.KeptBytes(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckOverride refuses the config of a load request if its n bytes exceed the limit.
func CheckOverride(limits *budget.Limits, n int) error {
	if int64(n) <= limits.ConfigOverride {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, "load parameter 'config' has %d bytes, but at most %d are allowed; --client-max-config-size changes the limit",
		n, limits.ConfigOverride)
}

// loadCharge returns the charge of a load, whose holder names the model, and settles it.
func (r *Registry) loadCharge(name string) (c *budget.Charge, settle func()) {
	account := r.config.Memory
	if account == nil {
		return nil, func() {}
	}
	holder := &budget.Holder{Name: func() string { return fmt.Sprintf("load of model %q", name) }}
	account.Enter(holder)
	c = &budget.Charge{Account: account, Holder: holder}
	return c, func() {
		c.Settle()
		holder.Leave()
	}
}

// chargeOverride charges the memory that a load needs for its config.
func (r *Registry) chargeOverride(c *budget.Charge, text string) error {
	if r.config.Memory == nil {
		return nil
	}
	if err := CheckOverride(c.Limits(), len(text)); err != nil {
		return err
	}
	return c.Take(budget.JSON, config.ReadBytes(text))
}

// override reads the parameters of a load request. The caller drops the upload. The error is for
// the log.
func (r *Registry) override(name, given string, files map[string][]byte) (o override, err error) {
	if given == "" {
		if len(files) > 0 {
			return o, infer.Errorf(infer.InvalidArg, "Load parameter 'config' must be specified for model file override")
		}
		return o, nil
	}
	if o.config, err = config.ParseJSON([]byte(given)); err != nil { // bound: charged by chargeOverride
		return override{}, fmt.Errorf("Invalid config override: %w", err) //nolint:revive // Triton's text
	}
	o.charge = r.config.Memory.Share()
	if len(files) == 0 {
		return o, nil
	}
	if !repository.IsName(name) {
		return override{}, infer.Errorf(infer.InvalidArg, "%q cannot be the name of a model", name)
	}
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(o.config) // bound: charged by chargeOverride
	if err != nil {
		return override{}, fmt.Errorf("write the config of the request: %w", err)
	}
	if o.upload, err = r.uploads.Write(files, text); err != nil {
		return override{}, err
	}
	return o, nil
}
