package repository

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/mirror"
	"github.com/nereid-serving/nereid/objectstore"
)

// Options configure how models are read.
type Options struct {
	// ConfigName makes configs/<ConfigName>.pbtxt of a model its configuration if that file exists,
	// instead of config.pbtxt.
	ConfigName string
	// DisableAutoComplete requires a complete configuration file: the model is not asked for
	// missing fields.
	DisableAutoComplete bool
	// AgentDirectory is the directory of repository agents, for the text that refuses models with
	// an agent; default /opt/tritonserver/repoagents.
	AgentDirectory string
	// SourcesAlone limits footprints to sources (.py and .pbtxt), so that files that a model writes
	// into its own directory do not count as changes.
	SourcesAlone bool
	// Namespacing lets directories of the same name lie in several repositories.
	Namespacing bool
	// GPUs returns the ids of the GPUs for instances, ascending; without any, KIND_GPU is refused.
	// It is called whenever a configuration is read, and may wait for the devices to be counted.
	// Nil: no GPUs.
	GPUs func() []int32
	// MinCapability is the least compute capability of GPUs, for the text that refuses others; 0 is
	// 6.
	MinCapability float64
	// Preferred returns the instance groups that a backend prefers, for models whose configuration
	// leaves them open. Several goroutines call it whenever a configuration is read; may be nil.
	Preferred func(backend string) []*kserve.ModelInstanceGroup
	// Objects opens repositories in object stores. Nil: they are refused.
	Objects objectstore.Opener
	// Mounts are the directories for copies of models from stores, by scheme; "" is the temporary
	// directory.
	Mounts map[string]string
	// StoreStall is the time without progress after which a call of a store fails; 0 is
	// mirror.DefaultStall.
	StoreStall time.Duration
	// Stop is closed to make Open give up its wait for stores; may be nil.
	Stop <-chan struct{}
	// Log receives the events of stores. The zero value writes nothing.
	Log zerolog.Logger
}

// Roots holds the operator's repositories and the registered ones. It keeps the directories open,
// writes nothing into them, and may be used by several goroutines.
type Roots struct {
	options Options
	// changing is held while list is replaced. Readers take no lock: they load the list once. A
	// directory that is removed meanwhile is closed, so that they find no model in it.
	changing sync.Mutex
	list     atomic.Pointer[[]*rootDir] // immutable; nil is empty
	// changed has a value when the listing of a store has changed. Mirrors send, the poller
	// receives. One value is enough, because the poller examines everything.
	changed chan struct{}
	// archives are the execution environments in stores; nil in the zero value, which has no
	// models.
	archives *mirror.Archives
}

// rootDir is one repository: a directory or a location in a store. It is immutable.
type rootDir struct {
	root  *os.Root // nil for a store
	path  string   // absolute
	shown string   // as the operator wrote it
	// In a registered repository, where is the directory of the model name; both are empty for the
	// operator's repositories.
	registered  bool
	where, name string
	// store is the mirror of a location in a store, nil for a directory; copies is where its copies
	// are kept.
	store  *mirror.Mirror
	copies *copies.Workspace
}

// all returns the current repositories.
func (r *Roots) all() []*rootDir {
	if list := r.list.Load(); list != nil {
		return *list
	}
	return nil
}

// reasonDuplicate is the reason in the repository index for a name in two repositories.
const reasonDuplicate = "model appears in two or more repositories"

// Open opens the directories that roots names; a directory that is named twice
// counts once. Errors are *infer.Error with Triton's text.
func Open(roots []string, options Options) (*Roots, error) {
	r := &Roots{options: options, changed: make(chan struct{}, 1)}
	r.archives = mirror.NewArchives(mirror.ArchivesConfig{
		Open: options.Objects, Base: func(scheme string) string { return options.Mounts[scheme] }, Variable: func(scheme string) string { return mountVariables[scheme] },
		Changed: r.storeChanged, Stall: options.StoreStall, Log: options.Log,
	})
	var list []*rootDir // bound: a flag
	refuse := func(err error) (*Roots, error) {
		closeAll(list)
		r.archives.Close()
		return nil, err
	}
	for _, path := range roots {
		location, remote, err := objectstore.Parse(path)
		if err != nil {
			return refuse(err)
		}
		if remote {
			if slices.ContainsFunc(list, func(o *rootDir) bool { return o.store != nil && o.store.Location().Same(location) }) {
				continue
			}
			o, err := r.openStore(location)
			if err != nil {
				return refuse(err)
			}
			list = append(list, o)
			continue
		}
		absolute, err := filepath.Abs(path)
		if err != nil || path == "" { // which would be the working directory
			return refuse(infer.Errorf(infer.Internal, "failed to stat file %s", path))
		}
		if slices.ContainsFunc(list, func(o *rootDir) bool { return o.path == absolute }) {
			continue
		}
		info, err := os.Stat(absolute)
		switch {
		case err != nil:
			return refuse(infer.Errorf(infer.Internal, "failed to stat file %s", path))
		case !info.IsDir():
			return refuse(infer.Errorf(infer.InvalidArg, "repository path is not a valid directory"))
		}
		root, err := os.OpenRoot(absolute)
		if err != nil {
			return refuse(infer.Errorf(infer.Internal, "failed to open directory %s: %s", path, strerror(err)))
		}
		list = append(list, &rootDir{root: root, path: absolute, shown: path})
	}
	r.list.Store(&list)
	return r, nil
}

// Close closes the directories. The repository is not used afterwards.
func (r *Roots) Close() {
	r.changing.Lock()
	defer r.changing.Unlock()
	closeAll(r.all())
	r.list.Store(nil)
	if r.archives != nil {
		r.archives.Close()
	}
}

func closeAll(list []*rootDir) {
	for _, o := range list {
		if o.store != nil {
			o.store.Close()
			o.copies.Close()
			continue
		}
		_ = o.root.Close()
	}
}

// Scan lists the current model directories by namespace and name, including rejected ones. Those in
// rejected cannot be loaded; the value is the reason in the repository index. The error is
// Internal.
//
// bound: the repositories and their models
func (r *Roots) Scan() (ids []Identity, rejected map[Identity]string, err error) {
	rejected = make(map[Identity]string)
	seen := make(Set)
	all := r.all()
	registered := make(map[string]*rootDir) // by the name that it was registered with
	for _, o := range all {
		if o.registered {
			registered[o.name] = o
		}
	}
	for _, o := range all {
		entries, err := o.entries()
		if o.gone(err) {
			continue
		}
		if err != nil {
			return nil, nil, infer.Errorf(infer.Internal, "failed to open directory %s: %s", o.shown, strerror(err))
		}
		for _, e := range entries {
			name, has := o.modelIn(e.name)
			id := r.identity(o, name)
			switch {
			case !e.dir, !has, !IsName(name), registered[name] != nil && registered[name] != o, o.passesOver(e.name):
			case seen[id]:
				rejected[id] = reasonDuplicate
			default:
				seen[id] = true
			}
		}
	}
	return seen.Sorted(), rejected, nil
}

// entries lists the repository; for a store, only directories.
func (o *rootDir) entries() ([]entry, error) {
	if o.store == nil {
		return listDirectory(o.root, ".", o.path)
	}
	var entries []entry // bound: the listing
	for _, name := range o.store.Models() {
		entries = append(entries, entry{name: name, dir: true})
	}
	return entries, nil
}

// passesOver reports whether a directory is ignored because it belongs to a tool: __pycache__, or a
// name with a leading dot such as .git or .ipynb_checkpoints, unless it contains a configuration or
// versions. Triton treats each of them as a model.
func (o *rootDir) passesOver(name string) bool {
	switch {
	case o.registered: // a client has named it
		return false
	case name == "__pycache__":
		return true
	case name[0] != '.':
		return false
	}
	inside, err := o.inside(name)
	return err != nil || !slices.ContainsFunc(inside, func(e entry) bool {
		versions, _ := config.PresentVersions([]string{e.name})
		return e.name == configFile || e.dir && len(versions) > 0
	})
}

// inside lists a directory of the repository.
func (o *rootDir) inside(name string) ([]entry, error) {
	if o.store == nil {
		return listDirectory(o.root, name, filepath.Join(o.path, name))
	}
	if model := o.store.Model(name); model != nil {
		return (&listed{model, o.store.Location()}).list(".")
	}
	return nil, fs.ErrNotExist
}

// Where returns the directory and the configuration file of a model as the operator would write
// them, for texts. The file need not exist. Both are "" unless the model is in exactly one
// repository.
func (r *Roots) Where(id Identity) (directory, file string) {
	f, _, err := r.find(id)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	_, shown := f.paths()
	return shown, shown + "/" + f.configInUse()
}

func (r *Roots) identity(o *rootDir, name string) Identity {
	if r.options.Namespacing {
		return Identity{Namespace: o.shown, Name: name}
	}
	return Identity{Name: name}
}

// Namespaces lists the repositories as the identities of models name them.
func (r *Roots) Namespaces() []string {
	var list []string // bound: the repositories
	for _, o := range r.all() {
		list = append(list, o.shown)
	}
	return list
}

// Find lists the models of a name that have a directory now, without duplicates.
func (r *Roots) Find(name string) []Identity {
	found := make(Set) // bound: the repositories
	for _, o := range having(r.all(), name) {
		where, has := o.directoryOf(name)
		if !has {
			continue
		}
		if o.hasDirectory(where) {
			found[r.identity(o, name)] = true
		}
	}
	return found.Sorted()
}

// hasDirectory reports whether the directory exists now.
func (o *rootDir) hasDirectory(name string) bool {
	if o.store != nil {
		return o.store.Model(name) != nil
	}
	info, err := os.Stat(filepath.Join(o.path, name))
	return err == nil && info.IsDir()
}

// Open opens the directory of a model. It fails for a model in a store.
func (r *Roots) Open(id Identity) (*Folder, error) {
	f, store, err := r.find(id)
	if err != nil {
		return nil, err
	}
	if folder, local := f.(*Folder); local {
		return folder, nil
	}
	return nil, infer.Errorf(infer.Internal, "model '%s' is in %s and has not been fetched", id.Name, store.Location())
}

// Config returns at most limit bytes of a model's configuration, and the file's name as the
// operator would write it. text is nil if there is no such file.
func (r *Roots) Config(id Identity, limit int64) (file string, text []byte, err error) {
	f, _, err := r.find(id)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	return f.Config(limit)
}

// find finds the only entry of a model, and its store, nil for a directory.
func (r *Roots) find(id Identity) (found modelFiles, in *mirror.Mirror, err error) {
	if IsName(id.Name) {
		for _, o := range having(r.all(), id.Name) {
			where, has := o.directoryOf(id.Name)
			if !has || id.Namespace != "" && id.Namespace != o.shown {
				continue
			}
			f, err := r.open(o, where)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || o.gone(err) {
				continue
			}
			if err != nil {
				return nil, nil, infer.Errorf(infer.Internal, "failed to open directory %s/%s: %s", o.shown, where, strerror(err))
			}
			if folder, local := f.(*Folder); local {
				folder.renamed = o.registered && o.name == id.Name
				folder.configName, folder.sourcesAlone = r.options.ConfigName, r.options.SourcesAlone
			}
			if found != nil {
				found.Close()
				f.Close()
				return nil, nil, NotUnique(id.Name)
			}
			found, in = f, o.store
		}
	}
	if found == nil {
		return nil, nil, NotFound(id.Name)
	}
	return found, in, nil
}

// open opens a directory of a repository.
func (r *Roots) open(o *rootDir, where string) (modelFiles, error) {
	if o.store == nil {
		return openFolder(o, where)
	}
	model := o.store.Model(where)
	if model == nil {
		return nil, fs.ErrNotExist
	}
	return &listed{model, o.store.Location()}, nil
}

// Footprint examines the files of a model, and the paths outside its directory: the Paths of the
// footprints that it will be compared with.
func (r *Roots) Footprint(id Identity, paths ...string) (Footprint, error) {
	f, _, err := r.find(id)
	if err != nil {
		return Footprint{}, err
	}
	defer f.Close()
	files := f.footprint()
	files.Outside = r.outside(paths...)
	return files, nil
}

// Namespacing reports whether directories of the same name may exist in several repositories.
func (r *Roots) Namespacing() bool { return r.options.Namespacing }

// LookupError reports that a model is not in exactly one repository. Its text stands alone.
type LookupError struct{ error }

func (e *LookupError) Unwrap() error { return e.error }

// NotFound reports that no repository has a directory of that name.
func NotFound(name string) *LookupError {
	return &LookupError{infer.Errorf(infer.NotFound, "failed to poll model '%s': model not found in any model repository.", name)}
}

// NotUnique reports that several repositories have a directory of that name.
func NotUnique(name string) *LookupError {
	return &LookupError{infer.Errorf(infer.Internal, "failed to poll model '%s': not unique across all model repositories", name)}
}

// IsName reports whether name can be the name of a model: a directory name that the protocols can
// carry.
func IsName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && utf8.ValidString(name)
}
