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

// Want notes what models are to be served from, nil for not at all, and which of them a
// request names. An operation holds them, and the models in held. It returns the models that
// are affected, for each of them the models that have to be done before, and the uploads that
// are not used any more.
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

// Aim is what a model is to become.
type Aim struct {
	Source  *Source // nil: it is not wanted, and so many of its versions are ended
	Ended   int
	Served  bool                  // it is served
	Parts   []repository.Identity // of an ensemble
	Moved   bool                  // its steps mean other models than those that it calls
	Invalid error                 // why an ensemble cannot be composed
}

// Aim looks up what a model is to become, from given unless that is nil, and takes one out
// of service that is not wanted.
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

// Invalidate takes an ensemble out of service that cannot be composed any more. It waits
// for its models. news is true if that has another reason than before.
func (k *Catalog) Invalidate(id repository.Identity, reason error) (changed, news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	news = m.invalid == nil || m.invalid.Error() != reason.Error()
	m.invalid = reason
	return k.withdrawLocked(m) > 0, news
}

// Begin shows the versions that are to be loaded from s as loading. It returns their numbers,
// ascending, for each the version that serves and can be given other instances instead, nil for
// none, and whether versions that serve are to leave. An ensemble is loaded as a whole.
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

// Turn has a model be wanted from s in place of what Begin was told last, which has shown the versions in begun as loading:
// the model has changed since. Begin comes next. The caller drops the upload that is returned.
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

// Result is what has become of one version that Begin has named.
type Result struct {
	Number int64
	Loaded *version.Version // nil after an error
	// Exchanged says that this is no other version but one that served and is to have
	// other instances, by Exchange unless there is an error.
	Exchanged bool
	Exchange  *version.Exchange
	Err       error
	// Imports are what the processes of a version that did not come up had imported; nil: that is not watched.
	Imports *repository.Imports
}

// Commit has all versions change hands at once, and the model be served from s. It reports
// whether the server exits: then nothing serves. The caller commits the exchanges then.
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

// Fail drops what came up beside what did not; versions that served before go on. It returns
// what is said of each version that failed; status prints an error. The caller ends what came up.
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

// Restore has a model that could not be loaded from s be wanted as it is served; if it is
// not, it is tried again at every poll and request, but for what has come with a request.
// The caller drops the upload that is returned.
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

// Exchange has versions of a model serve with their new instances, and the model be what a
// configuration with their count would have made of it. It fails if the server exits.
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

// Ended notes that a version which was retired has ended.
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

// idleLocked reports whether nothing is known of a model but that it has been unloaded, or was
// never loaded. A load that failed is known: while it is, the server is not ready.
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

// Idle lists the models that Forget would drop.
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

// Forget drops those of the models that have been unloaded, or were never loaded. The caller's
// operation has locked them, so no other one is between two steps with any of them.
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
