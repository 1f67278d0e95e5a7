package catalog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// State is where a version of a model is in its life, as the repository index
// shows it.
type State string

// The states of a version.
const (
	Unknown     State = "UNKNOWN"
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unloading   State = "UNLOADING"
	Unavailable State = "UNAVAILABLE"
)

// reason is why a version is not served, as clients and as operators see it.
type reason struct{ told, detail string }

// unloaded is the reason of a version that was unloaded on purpose.
var unloaded = reason{"unloaded", "unloaded"}

// entry is one version of a model in the catalog.
type entry struct {
	number int64
	state  State
	reason reason           // of UNAVAILABLE
	loaded *version.Version // of READY and UNLOADING, nil otherwise
}

// Owner is what the catalog asks of the registry. It is called with the catalog's lock held
// and calls nothing of the catalog before it has returned.
type Owner interface {
	// End begins to end a version that has been taken out of service, and returns at once.
	// When the version has ended, the owner calls Ended.
	End(model repository.Identity, number int64, v *version.Version)
	// Exiting reports whether nothing is to serve any more.
	Exiting() bool
}

// Catalog is what the registry knows of each model, under one lock.
type Catalog struct {
	roots *repository.Roots
	owner Owner

	// serving is what requests look at: replaced as a whole by publishLocked.
	serving atomic.Pointer[servingNow]
	// showFailures is set before anything is known of a model.
	showFailures bool

	mu     sync.Mutex
	models map[repository.Identity]*model
	// stepped is closed, and nil again, at the next step that is published; nil while no
	// goroutine waits for one.
	stepped chan struct{}
}

// New makes a catalog that knows no model.
func New(roots *repository.Roots, o Owner) *Catalog {
	k := &Catalog{roots: roots, owner: o, models: make(map[repository.Identity]*model)}
	k.serving.Store(&servingNow{})
	return k
}

// model is what the registry knows of one model. All is guarded by the catalog's
// mu, and but for the states of versions that end, only the operation that holds
// the model changes it.
type model struct {
	id repository.Identity
	// wanted is what the model is to be served from, nil if it is not to be served.
	// It is a user of its upload.
	wanted *Source
	// served is what the versions that are ready were loaded from. It differs from
	// wanted while a load is under way, or after the first has failed.
	served *Source
	named  bool // a request has named this model, and not only an ensemble of it
	// invalid is why an ensemble that is wanted cannot be composed.
	invalid error
	failure string // why the last load failed, "" if it did not
	// failed are the imports of the versions whose last load has failed, until a load of the model goes well.
	failed []*repository.Imports

	// versions is empty for a model that was never loaded or has no version.
	versions map[int64]*entry
	// attempted is true once loading was tried: a model without versions then
	// keeps the server from being ready.
	attempted bool
}

// want sets what the model is to be served from. The caller drops the upload that
// is returned once it has given the catalog's mu back.
func (m *model) want(s *Source) (replaced *copies.Copy) {
	if m.wanted != nil {
		replaced = m.wanted.Upload
	}
	if s != nil {
		s.Upload.Hold()
	}
	m.wanted = s
	return replaced
}

// readyLocked lists the versions that are ready, ascending.
func (m *model) readyLocked() []int64 {
	var ready []int64
	for number, v := range m.versions {
		if v.state == Ready {
			ready = append(ready, number)
		}
	}
	slices.Sort(ready)
	return ready
}

// staleLocked lists the versions that are ready and whose imports are not what files has looked at.
func (m *model) staleLocked(files repository.Footprint) (stale []int64) {
	for number, v := range m.versions {
		if v.state == Ready && !v.loaded.Imports().Same(files) {
			stale = append(stale, number)
		}
	}
	return stale
}

// importedLocked lists what versions have imported from outside of the model's directory, those that did not come up too.
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

// modelLocked returns what is known of a model, which may be nothing yet.
func (k *Catalog) modelLocked(id repository.Identity) *model {
	m := k.models[id]
	if m == nil {
		m = &model{id: id, versions: make(map[int64]*entry)}
		k.models[id] = m
	}
	return m
}

// publishLocked makes the present states visible to requests.
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
		s := &servingModel{versions: make(map[int64]*entry, len(m.versions))}
		for number, v := range m.versions {
			shown := *v
			s.versions[number] = &shown
			if v.state == Ready {
				s.ready = append(s.ready, number)
			}
		}
		slices.Sort(s.ready)
		now.models[id] = s
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

// retireLocked takes the versions that serve out of service, but for those to
// keep, which are replaced by the caller.
func (k *Catalog) retireLocked(m *model, keep []int64) []retired {
	var list []retired
	for number, v := range m.versions {
		if v.state != Ready || slices.Contains(keep, number) {
			continue
		}
		list = append(list, retired{number, v.loaded})
		v.state, v.reason = Unloading, reason{}
	}
	return list
}

// endLocked has the owner end versions that have been retired since mu was taken. Requests
// must not find them any more: publishLocked comes first.
func (k *Catalog) endLocked(m *model, versions []retired) {
	for _, old := range versions {
		k.owner.End(m.id, old.number, old.loaded)
	}
}

// withdrawLocked takes all versions of a model out of service and returns how many there
// were.
func (k *Catalog) withdrawLocked(m *model) int {
	list := k.retireLocked(m, nil)
	m.served = nil
	k.publishLocked()
	k.endLocked(m, list)
	return len(list)
}

// Outside lists what has to be looked at outside of a model's directory before IsServed and
// Waits can be asked: the Paths of what it was loaded from, and of what it is to be, and what is Imported.
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

// Imported lists the files outside of a model's directory that its processes have imported.
func (k *Catalog) Imported(id repository.Identity) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.models[id]; m != nil {
		return m.importedLocked()
	}
	return nil
}

// ChangedImports are the files, in the order of their paths, that the processes of a model have imported and that have changed
// since: those of the last load, and with all those of the versions that serve on where it has failed.
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

// IsAsTried reports whether the imports of the versions whose last load has failed are as they were then, but for those that
// are passed over.
func (k *Catalog) IsAsTried(id repository.Identity, files repository.Footprint, passed []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m == nil || !slices.ContainsFunc(m.failed, func(i *repository.Imports) bool {
		return slices.ContainsFunc(i.Changed(files), func(path string) bool { return !slices.Contains(passed, path) })
	})
}

// IsServed reports whether a model is served as its files are now.
func (k *Catalog) IsServed(id repository.Identity, files repository.Footprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	if m == nil || m.served == nil || m.served != m.wanted || m.served.Upload != nil {
		return false
	}
	return m.served.Files.Same(files) && len(m.staleLocked(files)) == 0 && slices.Equal(m.readyLocked(), m.served.Versions)
}

// IsWanted reports whether a model is to be served from its files as they are now, though it may be that they
// could not be loaded.
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

// Blame has the index say of a model that serves on why its directory could not be read as it is now.
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

// ShowFailures has the index say of versions that serve on why the last load of their model failed. It is called
// before anything else.
func (k *Catalog) ShowFailures() { k.showFailures = true }

// Waits reports whether a model is an ensemble that is as its files are now, but
// what it is composed of does not serve. When that changes it is loaded.
func (k *Catalog) Waits(id repository.Identity, files repository.Footprint) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.models[id]
	return m != nil && m.wanted != nil && m.invalid != nil && m.wanted.Files.Same(files)
}

// Knows reports whether there is such a version, or may be: of a model that was
// never loaded, and not looked at.
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

// Loaded lists the versions that have requests or may get some.
func (k *Catalog) Loaded() []*version.Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*version.Version
	for _, m := range k.models {
		for _, v := range m.versions {
			if v.loaded != nil {
				list = append(list, v.loaded)
			}
		}
	}
	return list
}

// Learn has the catalog know models, of which nothing else may be known yet.
func (k *Catalog) Learn(ids []repository.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.modelLocked(id)
	}
}

// AwaitUnloaded waits until no version of a model is READY, LOADING or UNLOADING, or until
// ctx ends: then it returns the cause.
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

// stepUnlessUnloaded returns nil if a model is unloaded. Otherwise the channel ends at the next step:
// it is made with mu held, so that no step comes between the look and the wait.
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

// Missing lists the models that are not there any more, as far as wanted says that they are to
// be served; wanted is told whether the catalog says so, and is called with its lock held.
func (k *Catalog) Missing(there repository.Set, wanted func(id repository.Identity, now bool) bool) []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	var gone []repository.Identity
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

// NotServed leaves, of ids, the models that are not both wanted and served.
func (k *Catalog) NotServed(ids []repository.Identity) []repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(ids, func(id repository.Identity) bool {
		m := k.models[id]
		return m != nil && m.wanted != nil && m.served != nil
	})
}

// Ready lists the versions of a model that are ready.
func (k *Catalog) Ready(id repository.Identity) []*version.Version {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*version.Version
	if m := k.models[id]; m != nil {
		for _, number := range m.readyLocked() {
			list = append(list, m.versions[number].loaded)
		}
	}
	return list
}

// AllReady reports whether all versions that are known and not unloaded are ready, and
// lists the ready ones.
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
