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
	"unicode/utf8"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
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
}

// rootDir is one of the directories. It does not change.
type rootDir struct {
	root  *os.Root
	path  string // absolute
	shown string // as the operator wrote it
	// Of a registered directory, where is that of the model name; both are empty for the
	// operator's.
	registered  bool
	where, name string
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
	r := &Roots{options: options}
	var list []*rootDir
	refuse := func(err error) (*Roots, error) {
		closeAll(list)
		return nil, err
	}
	for _, path := range roots {
		if scheme, option := cloudScheme(path); scheme != "" {
			return refuse(infer.Errorf(infer.Internal, "%s:// file-system not supported. To enable, build with -DTRITON_ENABLE_%s=ON."+
				" (That is for a Triton; this server reads directories alone: copy %s into one first.)", scheme, option, path))
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

// cloudScheme returns the scheme of a cloud store's URL, and what Triton calls that store in the names of its build
// options; both are empty for other paths.
func cloudScheme(path string) (scheme, option string) {
	for scheme, option := range map[string]string{"s3": "S3", "gs": "GCS", "as": "AZURE_STORAGE"} {
		if strings.HasPrefix(path, scheme+"://") {
			return scheme, option
		}
	}
	return "", ""
}

// Close gives the directories back. The repository is not used afterwards.
func (r *Roots) Close() {
	r.changing.Lock()
	defer r.changing.Unlock()
	closeAll(r.all())
	r.list.Store(nil)
}

func closeAll(list []*rootDir) {
	for _, o := range list {
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
		entries, err := listDirectory(o.root, ".", o.path)
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
	inside, err := listDirectory(o.root, name, filepath.Join(o.path, name))
	return err != nil || !slices.ContainsFunc(inside, func(e entry) bool {
		versions, _ := config.PresentVersions([]string{e.name})
		return e.name == configFile || e.dir && len(versions) > 0
	})
}

// Where returns the directory and the configuration file of a model as the operator would write
// them, for texts; the file need not be there. Both are "" unless the model is in one place.
func (r *Roots) Where(id Identity) (directory, file string) {
	f, err := r.Open(id)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	return f.shown, f.shown + "/" + f.configInUse()
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
		if info, err := os.Stat(filepath.Join(o.path, where)); err == nil && info.IsDir() {
			found[r.identity(o, name)] = true
		}
	}
	return found.Sorted()
}

// Open finds the one directory of a model.
func (r *Roots) Open(id Identity) (*Folder, error) {
	var found *Folder
	if IsName(id.Name) {
		for _, o := range having(r.all(), id.Name) {
			where, has := o.directoryOf(id.Name)
			if !has || id.Namespace != "" && id.Namespace != o.shown {
				continue
			}
			f, err := openFolder(o, where)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || o.gone(err) {
				continue
			}
			if err != nil {
				return nil, infer.Errorf(infer.Internal, "failed to open directory %s/%s: %s", o.shown, where, strerror(err))
			}
			f.renamed = o.registered && o.name == id.Name
			if found != nil {
				found.Close()
				f.Close()
				return nil, NotUnique(id.Name)
			}
			found = f
		}
	}
	if found == nil {
		return nil, NotFound(id.Name)
	}
	found.configName, found.sourcesAlone = r.options.ConfigName, r.options.SourcesAlone
	return found, nil
}

// Footprint looks at the files of a model, and at those outside of its directory, which are
// the Paths of the footprints that it will be compared with.
func (r *Roots) Footprint(id Identity, paths ...string) (Footprint, error) {
	f, err := r.Open(id)
	if err != nil {
		return Footprint{}, err
	}
	defer f.Close()
	files := f.footprint()
	files.Outside = outside(paths...)
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
