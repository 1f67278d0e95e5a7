package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Want sets the source from which each model is to be served, nil to unload it, and which of the
// models a request has named. An operation holds the models, and those in held. Want returns the
// affected models, the models that must be done before each of them, and the sources that are
// replaced, which the caller drops.
//
// bound: the models of an operation
func (k *Catalog) Want(sources map[repository.Identity]*Source, named, held repository.Set) (affected repository.Set, after map[repository.Identity][]repository.Identity, replaced []*Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	affected = make(repository.Set)
	for id, s := range sources {
		affected[id] = true
		m := k.modelLocked(id)
		k.clock++
		m.age, m.backed = k.clock, false
		replaced = append(replaced, m.want(s))
		m.failure = ""
		m.named = s != nil && (m.named || named[id])
		if s == nil || !s.IsEnsemble() {
			m.invalid = nil
		}
	}
	for id := range k.dependentsLocked(affected) {
		if held[id] {
			affected[id] = true
		}
	}
	after = make(map[repository.Identity][]repository.Identity)
	for id := range affected {
		if m := k.models[id]; k.circleLocked(m) == nil {
			for _, part := range k.composingLocked(m) {
				if affected[part.id] {
					after[id] = append(after[id], part.id)
				}
			}
		}
	}
	return affected, after, replaced
}

// Aim is the target state of a model.
type Aim struct {
	Source  *Source // nil: it is not wanted, and Ended of its versions are being ended
	Ended   int
	Served  bool                  // it is served
	Parts   []repository.Identity // of an ensemble; bound: the config
	Moved   bool                  // its steps resolve to other models than it calls
	Invalid error                 // why an ensemble cannot be composed
}

// Aim determines the target state of a model, from given unless that is nil. A model that is not
// wanted is taken out of service.
func (k *Catalog) Aim(id repository.Identity, given *Source) (a Aim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m.wanted == nil {
		a.Ended = k.withdrawLocked(m)
		return a
	}
	a.Source, a.Served = cmp.Or(given, m.wanted), m.served != nil
	if !a.Source.IsEnsemble() {
		return a
	}
	parts := k.composingLocked(m)
	for _, part := range parts {
		a.Parts = append(a.Parts, part.id)
	}
	a.Moved = m.callsOthersLocked(parts)
	if a.Invalid = k.checkDependenciesLocked(m); a.Invalid == nil {
		m.invalid = nil
	}
	return a
}

// Invalidate takes an ensemble out of service because it can no longer be composed. The ensemble
// then waits for its models. news reports whether the reason is new.
func (k *Catalog) Invalidate(id repository.Identity, reason error) (changed, news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	news = m.invalid == nil || m.invalid.Error() != reason.Error()
	m.invalid = reason
	return k.withdrawLocked(m) > 0, news
}

// Begin marks the versions to load from s as loading. It returns their numbers, ascending; for each
// number the serving version that can be given other instances instead, or nil; and whether serving
// versions are to leave. An ensemble is loaded as a whole.
//
// bound: the versions of the model
func (k *Catalog) Begin(id repository.Identity, s *Source) (fresh []int64, serving []*version.Version, leave bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	m.attempted = true
	was := m.served
	if s.IsEnsemble() {
		was = nil
	}
	p := planChange(was, s, m.readyLocked(), m.staleLocked(s.Files))
	fresh = slices.Sorted(slices.Values(slices.Concat(p.load, p.exchange)))
	serving = make([]*version.Version, len(fresh))
	for i, number := range fresh {
		if v := m.versions[number]; v == nil || v.state != Ready {
			m.set(entry{number: number, state: Loading})
		} else if has(p.exchange, number) {
			serving[i] = v.loaded
		}
	}
	k.publishLocked()
	return fresh, serving, len(p.leave) > 0
}

// Turn replaces the source s that Begin was told by a newer one, because the model has changed
// since. begun are the versions that Begin marked as loading. Another Begin follows. The caller
// drops the replaced source.
func (k *Catalog) Turn(id repository.Identity, s *Source, begun []int64) (replaced *Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	for _, number := range begun {
		if v := m.versions[number]; v != nil && v.state == Loading && !has(s.Versions, number) {
			m.remove(number)
		}
	}
	return m.want(s)
}

// Result is the outcome for one version that Begin returned.
type Result struct {
	Number int64
	Loaded *version.Version // nil after an error
	// Exchanged reports that the version served before and receives other instances. Exchange has
	// them unless there is an error.
	Exchanged bool
	Exchange  *version.Exchange
	Err       error
	// Imports are the files that the processes of a failed version had imported; nil: not tracked.
	Imports *repository.Imports
}

// Commit switches all versions at once, so that the model is served from s. It reports whether the
// server is exiting; then nothing serves. The caller commits the exchanges afterwards.
//
// bound: the versions of the model
func (k *Catalog) Commit(id repository.Identity, s *Source, results []Result) (exiting bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	ended := k.retireLocked(m, s.Versions)
	for _, x := range results {
		v := m.versions[x.Number]
		if x.Exchange != nil {
			changed := *v
			changed.loaded = x.Exchange.After()
			m.set(changed)
			continue
		}
		if v.state == Ready { // else the server exits and has ended it
			ended = append(ended, retired{x.Number, v.loaded})
		}
		m.set(entry{number: x.Number, state: Ready, loaded: x.Loaded})
	}
	exiting = k.owner.Exiting()
	if exiting {
		ended = append(ended, k.retireLocked(m, nil)...)
	}
	m.serve(s)
	m.failure, m.failed = "", nil
	k.publishLocked()
	k.endLocked(m, ended)
	return exiting
}

// maxFailures bounds each text of a Fail, in bytes. It has the first versions and the number of the
// others.
const maxFailures = 32 << 10

// failures collects why the versions of a model failed.
type failures struct {
	text strings.Builder // bound: maxFailures, or one version
	more int             // versions that are not in text
}

func (f *failures) add(number int64, state State, why string) {
	if f.more > 0 || f.text.Len() > 0 && f.text.Len()+len(why) > maxFailures {
		f.more++
		return
	}
	fmt.Fprintf(&f.text, "version %d is at %s state: %s;", number, state, why)
}

// done returns the text.
func (f *failures) done() string {
	if f.more > 0 {
		fmt.Fprintf(&f.text, " and %d more versions", f.more)
	}
	return f.text.String()
}

// Fail discards the versions that came up beside failed ones; versions that served before continue.
// It returns the combined error of the failed versions, printed with status, which the catalog
// keeps for each version. The caller has shortened the errors, and ends the versions that came up.
func (k *Catalog) Fail(id repository.Identity, results []Result, status func(error) string) *infer.Error {
	var told, details failures
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	m.failed = nil
	for _, x := range results {
		if x.Err != nil && x.Imports != nil {
			m.failed = append(m.failed, x.Imports)
		}
		state := Unavailable
		if x.Exchanged {
			state = Ready
		}
		why := unloaded
		if x.Err != nil {
			why = reason{status(x.Err), status(infer.AsError(x.Err).Detailed())}
			if why.detail == why.told {
				why.detail = why.told // one text in memory
			}
			told.add(x.Number, state, why.told)
			details.add(x.Number, state, why.detail)
		}
		if m.versions[x.Number].state == Loading { // else it serves on
			m.set(entry{number: x.Number, state: Unavailable, reason: why})
		}
	}
	m.trimLocked()
	k.publishLocked()
	err := &infer.Error{Code: infer.InvalidArg, Message: told.done()}
	if detail := details.done(); detail != err.Message {
		err.Detail = detail
	}
	return err
}

// Restore makes a model that could not be loaded from s wanted as it is served. If it is not
// served, each poll and request tries again, except for sources that came with a request. The
// caller drops the replaced source.
func (k *Catalog) Restore(id repository.Identity, s *Source, failure string) (replaced *Source) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	m.failure = failure
	if m.served != nil || s.Upload != nil && !s.IsEnsemble() {
		replaced = m.want(m.served)
	}
	return replaced
}

// Exchange switches versions of a model to their new instances and updates the model's
// configuration with their count. It fails if the server is exiting.
func (k *Catalog) Exchange(id repository.Identity, updates []*version.Exchange) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owner.Exiting() {
		return false
	}
	m := k.models[id]
	for _, u := range updates {
		v := *m.versions[u.After().Info().Version]
		v.loaded = u.After()
		m.set(v)
	}
	if was := m.served; was != nil {
		description := *was.Description
		description.Config = config.Clone(description.Config)
		description.Config.InstanceGroup = config.Clone(updates[0].After().Info().Config).InstanceGroup
		served := *was
		served.Description = &description
		if m.wanted == was {
			m.wanted = &served
		}
		m.serve(&served)
	}
	k.publishLocked()
	return true
}

// RetireAll takes all versions of all models out of service.
//
// bound: the models
func (k *Catalog) RetireAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	ended := make(map[*model][]retired)
	for _, m := range k.models {
		ended[m] = k.retireLocked(m, nil)
	}
	k.publishLocked()
	for m, versions := range ended {
		k.endLocked(m, versions)
	}
}

// Ended records that a retired version has ended.
func (k *Catalog) Ended(id repository.Identity, number int64, ended *version.Version) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m == nil { // its successor has ended before it, and the model has been forgotten
		return
	}
	if v := m.versions[number]; v != nil && v.loaded == ended {
		m.set(entry{number: number, state: Unavailable, reason: unloaded})
		if !k.owner.Exiting() { // else a load may be about to commit or fail this version
			m.trimLocked()
		}
		k.publishLocked()
	}
}
