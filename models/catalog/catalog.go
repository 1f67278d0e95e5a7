package catalog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// State is the state of a model version, as the repository index shows it.
type State string

// The states of a version.
const (
	Unknown     State = "UNKNOWN"
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unloading   State = "UNLOADING"
	Unavailable State = "UNAVAILABLE"
)

// reason is why a version is not served: told is for clients, detail for operators.
type reason struct{ told, detail string }

// unloaded is the reason of a version that was unloaded on purpose.
var unloaded = reason{"unloaded", "unloaded"}

// entry is one version of a model in the catalog. It is immutable, because the snapshots for
// requests have it too.
type entry struct {
	number int64
	state  State
	reason reason           // of UNAVAILABLE
	loaded *version.Version // of READY and UNLOADING, nil otherwise
}

// Owner is the part of the registry that the catalog calls. Its methods are called with the
// catalog's lock held and must not call the catalog before they return.
type Owner interface {
	// End begins to end a version that was taken out of service, and returns at once. The owner
	// calls Ended when the version has ended.
	End(model repository.Identity, number int64, v *version.Version)
	// Exiting reports whether the server is exiting, so that nothing may begin to serve.
	Exiting() bool
}

// Catalog records the state of each model, under one lock.
type Catalog struct {
	roots *repository.Roots
	owner Owner

	// serving is the snapshot that requests read; publishLocked replaces it as a whole.
	serving atomic.Pointer[servingNow]
	// showFailures is set before any model is known.
	showFailures bool

	mu sync.Mutex
	// models has the models of the repositories, and those that requests have loaded or tried to.
	//
	// bound: the models that have a directory or serve, and maxLeft
	models map[repository.Identity]*model
	clock  uint64 // counts calls of Want for a model
	// stepped is closed and reset to nil when the next step is published; nil while no goroutine
	// waits for one.
	stepped chan struct{}
}

// New makes an empty catalog.
func New(roots *repository.Roots, o Owner) *Catalog {
	k := &Catalog{roots: roots, owner: o, models: make(map[repository.Identity]*model)}
	k.serving.Store(&servingNow{})
	return k
}

// model is the record of one model, guarded by the catalog's mu. Apart from the states of ending
// versions, only the operation that holds the model changes it.
type model struct {
	id repository.Identity
	// wanted is the source that the model is to be served from, nil if it is not to be served. It
	// is a user of its upload and its charge.
	wanted *Source
	// served is the source of the ready versions. It differs from wanted during a load, or after
	// the first load has failed. It is a user of its charge; the versions are those of its upload.
	served *Source
	named  bool // a request has named this model, and not only an ensemble of it
	// invalid is why a wanted ensemble cannot be composed.
	invalid error
	failure string // why the last load failed, "" if it did not
	// failed are the imports of versions whose last load failed, until a load of the model
	// succeeds.
	//
	// bound: the versions of the model
	failed []*repository.Imports

	// versions is empty for a model that was never loaded or has no version.
	//
	// bound: the versions that serve or load, and maxUnserved
	versions map[int64]*entry
	shown    *servingModel // of versions, for snapshots; nil after a change
	age      uint64        // Catalog.clock at the last Want
	backed   bool          // it had a directory when Discard was told, or Learn
	// attempted is true once a load was tried: from then on a model without versions keeps the
	// server from being ready.
	attempted bool
}

// serve sets the source of the ready versions.
func (m *model) serve(s *Source) {
	if s != nil {
		s.Charge.Hold()
	}
	if m.served != nil {
		m.served.Charge.Drop()
	}
	m.served = s
}

// want sets the source to serve from. The caller drops the replaced one after it has released the
// catalog's mu.
func (m *model) want(s *Source) (replaced *Source) {
	replaced, m.wanted = m.wanted, s.hold()
	return replaced
}

// set replaces the entry of a version.
func (m *model) set(v entry) {
	m.versions[v.number] = &v
	m.shown = nil
}

// remove removes a version.
func (m *model) remove(number int64) {
	delete(m.versions, number)
	m.shown = nil
}

// readyLocked lists the ready versions, ascending.
func (m *model) readyLocked() []int64 {
	var ready []int64 // bound: the versions that serve
	for number, v := range m.versions {
		if v.state == Ready {
			ready = append(ready, number)
		}
	}
	slices.Sort(ready)
	return ready
}

// staleLocked lists the ready versions whose imports differ from the files.
//
// bound: the versions that serve
func (m *model) staleLocked(files repository.Footprint) (stale []int64) {
	for number, v := range m.versions {
		if v.state == Ready && !v.loaded.Imports().Same(files) {
			stale = append(stale, number)
		}
	}
	return stale
}

// importedLocked lists the files outside the model's directory that its versions have imported,
// including versions that failed to load.
//
// bound: imports, of which repository.Imports accepts a limited number
func (m *model) importedLocked() (paths []string) {
	for _, v := range m.versions {
		if v.state == Ready {
			paths = append(paths, v.loaded.Imports().Paths()...)
		}
	}
	for _, i := range m.failed {
		paths = append(paths, i.Paths()...)
	}
	return paths
}

// modelLocked returns the record of a model, which it creates if necessary.
func (k *Catalog) modelLocked(id repository.Identity) *model {
	m := k.models[id]
	if m == nil {
		m = &model{id: id, versions: make(map[int64]*entry)}
		k.models[id] = m
	}
	return m
}

// publishLocked makes the current states visible to requests. A model that has not changed keeps
// its part of the snapshot.
//
// bound: the models and their versions
func (k *Catalog) publishLocked() {
	now := &servingNow{models: make(map[repository.Identity]*servingModel, len(k.models))}
	if k.roots.Namespacing() {
		now.names = make(map[string][]repository.Identity)
	}
	for id, m := range k.models {
		if now.names != nil && m.wanted != nil {
			now.names[id.Name] = append(now.names[id.Name], id)
		}
		if len(m.versions) == 0 && !m.attempted {
			continue
		}
		if m.shown == nil {
			m.shown = &servingModel{versions: maps.Clone(m.versions), ready: m.readyLocked()}
		}
		now.models[id] = m.shown
	}
	k.serving.Store(now)
	if k.stepped != nil {
		close(k.stepped)
		k.stepped = nil
	}
}

// retired is a version that has been taken out of service.
type retired struct {
	number int64
	loaded *version.Version
}

// retireLocked takes the ready versions out of service, except those to keep, ascending, which the
// caller replaces.
func (k *Catalog) retireLocked(m *model, keep []int64) []retired {
	var list []retired // bound: the versions that serve
	for number, v := range m.versions {
		if v.state != Ready || has(keep, number) {
			continue
		}
		list = append(list, retired{number, v.loaded})
		m.set(entry{number: number, state: Unloading, loaded: v.loaded})
	}
	return list
}

// endLocked makes the owner end versions that have been retired under this mu. publishLocked comes
// first, so that requests no longer find them.
func (k *Catalog) endLocked(m *model, versions []retired) {
	for _, old := range versions {
		k.owner.End(m.id, old.number, old.loaded)
	}
}

// withdrawLocked takes all versions of a model out of service and returns their number.
func (k *Catalog) withdrawLocked(m *model) int {
	list := k.retireLocked(m, nil)
	m.serve(nil)
	k.publishLocked()
	k.endLocked(m, list)
	return len(list)
}

// Outside lists the paths outside the model's directory that a footprint must cover before IsServed
// and Waits: those of the served and the wanted source, and Imported.
//
// bound: imports, of which repository.Imports accepts a limited number, and environments
func (k *Catalog) Outside(id repository.Identity) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m == nil {
		return nil
	}
	var paths []string
	for _, s := range []*Source{m.served, m.wanted} {
		if s != nil {
			paths = append(paths, s.Files.Paths()...)
		}
	}
	return append(paths, m.importedLocked()...)
}

// Imported lists the files outside the model's directory that its processes have imported.
func (k *Catalog) Imported(id repository.Identity) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.models[id]; m != nil {
		return m.importedLocked()
	}
	return nil
}

// ChangedImports lists, in order, the imported files that have changed since their import: those of
// the last failed load, or of the ready versions if no load failed. With all it lists both.
//
// bound: imports, of which repository.Imports accepts a limited number
func (k *Catalog) ChangedImports(id repository.Identity, files repository.Footprint, all bool) (paths []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m == nil {
		return nil
	}
	imports := slices.Clone(m.failed)
	if all || len(imports) == 0 {
		for _, number := range m.readyLocked() {
			imports = append(imports, m.versions[number].loaded.Imports())
		}
	}
	for _, i := range imports {
		paths = append(paths, i.Changed(files)...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// IsAsTried reports whether the imports of the last failed load are unchanged, ignoring the passed
// paths.
func (k *Catalog) IsAsTried(id repository.Identity, files repository.Footprint, passed []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m == nil || !slices.ContainsFunc(m.failed, func(i *repository.Imports) bool {
		return slices.ContainsFunc(i.Changed(files), func(path string) bool { return !slices.Contains(passed, path) })
	})
}

// IsServed reports whether a model is served from its current files.
func (k *Catalog) IsServed(id repository.Identity, files repository.Footprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m == nil || m.served == nil || m.served != m.wanted || m.served.Upload != nil {
		return false
	}
	return m.served.Files.Same(files) && len(m.staleLocked(files)) == 0 && slices.Equal(m.readyLocked(), m.served.Versions)
}

// IsWanted reports whether a model is wanted from its current files, even if their load failed.
func (k *Catalog) IsWanted(id repository.Identity, files repository.Footprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m != nil && m.wanted != nil && m.wanted.Files.Same(files)
}

// Follows reports whether a model is to be served from its directory.
func (k *Catalog) Follows(id repository.Identity) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m != nil && m.wanted != nil && m.wanted.Upload == nil
}

// Blame sets the reason that the index shows for a model that still serves although its directory
// can no longer be read.
func (k *Catalog) Blame(id repository.Identity, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.models[id]; m != nil {
		m.failure = reason
	}
}

// Failure returns why the last load of a model failed, "" if it did not.
func (k *Catalog) Failure(id repository.Identity) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.models[id]; m != nil {
		return m.failure
	}
	return ""
}

// ShowFailures makes the index show, for versions that still serve, why the last load of their
// model failed. It is called before anything else.
func (k *Catalog) ShowFailures() { k.showFailures = true }

// Waits reports whether a model is an ensemble with unchanged files whose composing models do not
// all serve. It is loaded when they do.
func (k *Catalog) Waits(id repository.Identity, files repository.Footprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m != nil && m.wanted != nil && m.invalid != nil && m.wanted.Files.Same(files)
}

// Knows reports whether the version exists or may exist. The versions of a model that was never
// loaded are unknown.
func (k *Catalog) Knows(name string, number int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, m := range k.models {
		if id.Name == name && (number == infer.LatestVersion || len(m.versions) == 0 || m.versions[number] != nil) {
			return true
		}
	}
	return false
}

// Loaded lists the versions that have requests or may receive some.
func (k *Catalog) Loaded() []*version.Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*version.Version // bound: the loaded versions
	for _, m := range k.models {
		for _, v := range m.versions {
			if v.loaded != nil {
				list = append(list, v.loaded)
			}
		}
	}
	return list
}

// Learn adds models of the repositories about which nothing else is known yet.
func (k *Catalog) Learn(ids []repository.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.modelLocked(id).backed = true
	}
}

// AwaitUnloaded waits until no version of a model is READY, LOADING or UNLOADING. If ctx ends
// first, it returns the cause.
func (k *Catalog) AwaitUnloaded(ctx context.Context, name string) error {
	for {
		step := k.stepUnlessUnloaded(name)
		if step == nil {
			return nil
		}
		select {
		case <-step:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stepUnlessUnloaded returns nil if a model is unloaded, and otherwise a channel that is closed at
// the next step. The channel is made with mu held, so no step is missed between the check and the
// wait.
func (k *Catalog) stepUnlessUnloaded(name string) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	unloaded := true
	for id, m := range k.models {
		for _, v := range m.versions {
			unloaded = unloaded && (id.Name != name || v.state == Unavailable)
		}
	}
	if unloaded {
		return nil
	}
	if k.stepped == nil {
		k.stepped = make(chan struct{})
	}
	return k.stepped
}

// Missing lists the models that should be served according to wanted but are no longer there.
// wanted receives the catalog's own answer and is called with the lock held.
func (k *Catalog) Missing(there repository.Set, wanted func(id repository.Identity, now bool) bool) []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	var gone []repository.Identity // bound: the models
	for id, m := range k.models {
		if there[id] || !wanted(id, m.wanted != nil) {
			continue
		}
		gone = append(gone, id)
		if len(m.versions) == 0 {
			m.attempted = false // that it could not be loaded is no news
		}
	}
	return gone
}

// NotServed returns the ids of models that are not both wanted and served.
func (k *Catalog) NotServed(ids []repository.Identity) []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(ids, func(id repository.Identity) bool {
		m := k.models[id]
		return m != nil && m.wanted != nil && m.served != nil
	})
}

// Ready lists the ready versions of a model.
func (k *Catalog) Ready(id repository.Identity) []*version.Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*version.Version // bound: the versions that serve
	if m := k.models[id]; m != nil {
		for _, number := range m.readyLocked() {
			list = append(list, m.versions[number].loaded)
		}
	}
	return list
}

// AllReady lists the ready versions and reports whether every known version is either ready or
// unloaded.
//
// bound: the versions that serve
func (k *Catalog) AllReady() (serving []*version.Version, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all = true
	for _, m := range k.models {
		if m.attempted && len(m.versions) == 0 {
			all = false
		}
		for _, v := range m.versions {
			switch {
			case v.state == Ready:
				serving = append(serving, v.loaded)
			case v.state != Unavailable || v.reason != unloaded:
				all = false
			}
		}
	}
	return serving, all
}
