package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Want sets the source from which each model is to be served, nil to unload it, and which of the
// models a request has named. An operation holds the models, and those in held. Want returns the
// affected models, the models that must be done before each of them, and the uploads that are no
// longer used.
func (k *Catalog) Want(sources map[repository.Identity]*Source, named, held repository.Set) (affected repository.Set, after map[repository.Identity][]repository.Identity, replaced []*copies.Copy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	affected = make(repository.Set)
	for id, s := range sources {
		affected[id] = true
		m := k.modelLocked(id)
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
	Parts   []repository.Identity // of an ensemble
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

// Invalidate takes an ensemble out of service that can no longer be composed. It waits for its
// models. news reports whether the reason is new.
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
		v := m.versions[number]
		if v == nil {
			v = &entry{number: number}
			m.versions[number] = v
		}
		if v.state != Ready {
			v.state, v.reason, v.loaded = Loading, reason{}, nil
		} else if slices.Contains(p.exchange, number) {
			serving[i] = v.loaded
		}
	}
	k.publishLocked()
	return fresh, serving, len(p.leave) > 0
}

// Turn replaces the source s that Begin was told by a newer one, because the model has changed
// since. begun are the versions that Begin marked as loading. Another Begin follows. The caller
// drops the returned upload.
func (k *Catalog) Turn(id repository.Identity, s *Source, begun []int64) (replaced *copies.Copy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	for _, number := range begun {
		if v := m.versions[number]; v != nil && v.state == Loading && !slices.Contains(s.Versions, number) {
			delete(m.versions, number)
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
func (k *Catalog) Commit(id repository.Identity, s *Source, results []Result) (exiting bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	ended := k.retireLocked(m, s.Versions)
	for _, x := range results {
		v := m.versions[x.Number]
		if x.Exchange != nil {
			v.loaded = x.Exchange.After()
			continue
		}
		if v.state == Ready { // else the server exits and has ended it
			ended = append(ended, retired{x.Number, v.loaded})
		}
		v.state, v.reason, v.loaded = Ready, reason{}, x.Loaded
	}
	exiting = k.owner.Exiting()
	if exiting {
		ended = append(ended, k.retireLocked(m, nil)...)
	}
	m.served, m.failure, m.failed = s, "", nil
	k.publishLocked()
	k.endLocked(m, ended)
	return exiting
}

// Fail discards the versions that came up beside failed ones; versions that served before continue.
// It returns the combined error of the failed versions, printed with status. The caller ends the
// versions that came up.
func (k *Catalog) Fail(id repository.Identity, results []Result, status func(error) string) *infer.Error {
	var pieces, details strings.Builder
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	m.failed = nil
	for _, x := range results {
		if x.Err != nil && x.Imports != nil {
			m.failed = append(m.failed, x.Imports)
		}
		v := m.versions[x.Number]
		state := Unavailable
		if x.Exchanged {
			state = Ready
		}
		why := unloaded
		if x.Err != nil {
			why = reason{status(x.Err), status(infer.AsError(x.Err).Detailed())}
			fmt.Fprintf(&pieces, "version %d is at %s state: %s;", x.Number, state, why.told)
			fmt.Fprintf(&details, "version %d is at %s state: %s;", x.Number, state, why.detail)
		}
		if v.state == Loading { // else it serves on
			v.state, v.reason = Unavailable, why
		}
	}
	k.publishLocked()
	return &infer.Error{Code: infer.InvalidArg, Message: pieces.String(), Detail: details.String()}
}

// Restore makes a model that could not be loaded from s wanted as it is served. If it is not
// served, each poll and request tries again, except for sources that came with a request. The
// caller drops the returned upload.
func (k *Catalog) Restore(id repository.Identity, s *Source, failure string) (replaced *copies.Copy) {
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
		m.versions[u.After().Info().Version].loaded = u.After()
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
		m.served = &served
	}
	k.publishLocked()
	return true
}

// RetireAll takes all versions of all models out of service.
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
		v.state, v.reason, v.loaded = Unavailable, unloaded, nil
		k.publishLocked()
	}
}

// idleLocked reports whether a model is unloaded or was never loaded, and nothing else is known of
// it. A failed load counts as known, because it keeps the server from being ready.
func (m *model) idleLocked() bool {
	if m.wanted != nil || m.served != nil || m.invalid != nil || m.attempted && len(m.versions) == 0 {
		return false
	}
	for _, v := range m.versions {
		if v.state != Unavailable || v.reason != unloaded {
			return false
		}
	}
	return true
}

// Idle lists the models that Forget would remove.
func (k *Catalog) Idle() []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	var idle []repository.Identity
	for id, m := range k.models {
		if m.idleLocked() {
			idle = append(idle, id)
		}
	}
	return idle
}

// Forget removes those of the models that are unloaded or were never loaded. The caller's operation
// has locked them, so that no other operation is between two steps with any of them.
func (k *Catalog) Forget(ids []repository.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if m := k.models[id]; m != nil && m.idleLocked() {
			delete(k.models, id)
		}
	}
	k.publishLocked()
}
