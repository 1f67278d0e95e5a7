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

// Options says how models are read.
type Options struct {
	// ConfigName makes configs/<ConfigName>.pbtxt of a model its configuration
	// where that file exists, instead of config.pbtxt.
	ConfigName string
	// DisableAutoComplete makes a configuration file necessary and complete: the
	// model is not asked for what is missing.
	DisableAutoComplete bool
	// AgentDirectory is where repository agents would lie, for the text that
	// refuses models which want one; default /opt/tritonserver/repoagents.
	AgentDirectory string
	// SourcesAlone has footprints look at sources alone (.py and .pbtxt), so that what a model writes into
	// its own directory is no change of it.
	SourcesAlone bool
	// Namespacing lets directories of the same name lie in several repositories.
	Namespacing bool
	// GPUs returns the ids of the GPUs on which instances may be placed, ascending; none:
	// KIND_GPU is refused. It is called whenever a configuration is read and may wait until
	// they have been counted. Nil: there are none.
	GPUs func() []int32
	// MinCapability is the least compute capability of GPUs, for the text that refuses
	// others; 0 is 6.
	MinCapability float64
	// Preferred returns the instance groups that a backend prefers, for models whose
	// configuration leaves them open. It is called whenever a configuration is read, by several
	// goroutines. Nil: none prefers any.
	Preferred func(backend string) []*kserve.ModelInstanceGroup
	// Objects opens repositories that lie in object stores. Nil: they are refused.
	Objects objectstore.Opener
	// Mounts are the directories in which copies of models from stores lie, by scheme; "" is that for temporary files.
	Mounts map[string]string
	// StoreStall is how long a store may send nothing before a call of it is given up; 0 is mirror.DefaultStall.
	StoreStall time.Duration
	// Stop is closed when Open is to give up its wait for stores. Nil: it never is.
	Stop <-chan struct{}
	// Log has what stores do. The zero value writes nothing.
	Log zerolog.Logger
}

// Roots is the directories of model directories: those that the operator names, and those
// that are registered meanwhile. It holds them open, writes nothing into them, and may be used
// by several goroutines.
type Roots struct {
	options Options
	// changing is held while list is replaced. Readers take no lock: they load the list
	// once, and a directory that leaves it under their hands is closed, so that they find no
	// model in it.
	changing sync.Mutex
	list     atomic.Pointer[[]*rootDir] // does not change; nil is empty
	// changed has a value when the listing of a store has changed; mirrors send, the poller takes. One is enough: it
	// looks at everything.
	changed chan struct{}
	// archives are the execution environments that lie in stores; nil of the zero value, which has no models.
	archives *mirror.Archives
}

// rootDir is one of the directories, or a location in a store. It does not change.
type rootDir struct {
	root  *os.Root // nil if it lies in a store
	path  string   // absolute
	shown string   // as the operator wrote it
	// Of a registered directory, where is that of the model name; both are empty for the
	// operator's.
	registered  bool
	where, name string
	// store is the mirror of a location in a store, nil for a directory; copies are where its copies lie.
	store  *mirror.Mirror
	copies *copies.Place
}

// all are the directories that there are now.
func (r *Roots) all() []*rootDir {
	if list := r.list.Load(); list != nil {
		return *list
	}
	return nil
}

// reasonDuplicate stands in the repository index for a name that two roots have.
const reasonDuplicate = "model appears in two or more repositories"

// Open opens the directories that roots names; a directory that is named twice
// counts once. Errors are *infer.Error with Triton's text.
func Open(roots []string, options Options) (*Roots, error) {
	r := &Roots{options: options, changed: make(chan struct{}, 1)}
	r.archives = mirror.NewArchives(mirror.ArchivesConfig{
		Open: options.Objects, Base: func(scheme string) string { return options.Mounts[scheme] }, Variable: func(scheme string) string { return mountVariables[scheme] },
		Changed: r.storeChanged, Stall: options.StoreStall, Log: options.Log,
	})
	var list []*rootDir
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

// Close gives the directories back. The repository is not used afterwards.
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

// Scan lists the model directories that exist now, by namespace and name. Those
// in rejected cannot be loaded; the value is the reason that the repository index
// shows. A rejected one stands in the list too. The error is Internal.
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

// entries lists what lies in the repository; of a store, directories alone.
func (o *rootDir) entries() ([]entry, error) {
	if o.store == nil {
		return listDirectory(o.root, ".", o.path)
	}
	var entries []entry
	for _, name := range o.store.Models() {
		entries = append(entries, entry{name: name, dir: true})
	}
	return entries, nil
}

// passesOver reports whether a directory is a tool's and not a model's: __pycache__, and one
// whose name begins with a dot, such as .git or .ipynb_checkpoints, unless it has what only models
// have. Triton takes each of them for a model.
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

// inside lists what is in a directory of the repository.
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
// them, for texts; the file need not be there. Both are "" unless the model is in one place.
func (r *Roots) Where(id Identity) (directory, file string) {
	f, _, err := r.find(id)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	_, shown := f.place()
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
	var list []string
	for _, o := range r.all() {
		list = append(list, o.shown)
	}
	return list
}

// Find lists the models of a name that have a directory now, each once.
func (r *Roots) Find(name string) []Identity {
	found := make(Set)
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

// hasDirectory reports whether there is such a directory now.
func (o *rootDir) hasDirectory(name string) bool {
	if o.store != nil {
		return o.store.Model(name) != nil
	}
	info, err := os.Stat(filepath.Join(o.path, name))
	return err == nil && info.IsDir()
}

// Open finds the one directory of a model. It fails for a model that lies in a store.
func (r *Roots) Open(id Identity) (*Folder, error) {
	f, store, err := r.find(id)
	if err != nil {
		return nil, err
	}
	if folder, local := f.(*Folder); local {
		return folder, nil
	}
	return nil, infer.Errorf(infer.Internal, "model '%s' lies in %s, and has not been fetched", id.Name, store.Location())
}

// Config returns the beginning of the configuration of a model, at most limit bytes, and the file's name as the operator
// would write it; text is nil if there is no such file.
func (r *Roots) Config(id Identity, limit int64) (file string, text []byte, err error) {
	f, _, err := r.find(id)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	return f.Config(limit)
}

// find finds the one place of a model, and the store in which that is, nil for a directory.
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

// Footprint looks at the files of a model, and at those outside of its directory, which are
// the Paths of the footprints that it will be compared with.
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

// Namespacing reports whether directories of the same name may lie in several
// repositories.
func (r *Roots) Namespacing() bool { return r.options.Namespacing }

// PlaceError says that a model is not in exactly one place. Its text stands
// alone.
type PlaceError struct{ error }

func (e *PlaceError) Unwrap() error { return e.error }

// NotFound says that no repository has a directory of that name.
func NotFound(name string) *PlaceError {
	return &PlaceError{infer.Errorf(infer.NotFound, "failed to poll model '%s': model not found in any model repository.", name)}
}

// NotUnique says that several repositories have a directory of that name.
func NotUnique(name string) *PlaceError {
	return &PlaceError{infer.Errorf(infer.Internal, "failed to poll model '%s': not unique across all model repositories", name)}
}

// IsName reports whether name can be the name of a model: that of a directory,
// and one that the protocols can say.
func IsName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && utf8.ValidString(name)
}
