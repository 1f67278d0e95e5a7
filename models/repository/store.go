package repository

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/mirror"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/panics"
)

// fetchTries bounds the copies that are begun of a model whose objects keep changing.
const fetchTries = 5

// mountVariables name the environment variables for the directories of copies, by scheme.
var mountVariables = map[string]string{
	objectstore.S3: "TRITON_AWS_MOUNT_DIRECTORY", objectstore.GCS: "TRITON_GCS_MOUNT_DIRECTORY", objectstore.Azure: "TRITON_AZURE_MOUNT_DIRECTORY",
}

// MountVariables lists the environment variables for Options.Mounts, by scheme.
func MountVariables() map[string]string { return mountVariables }

// listed is a model in the last listing of a store.
type listed struct {
	model    *mirror.Model
	location objectstore.Location
}

func (l *listed) list(directory string) ([]entry, error) {
	if l.model.Fault != nil {
		return nil, l.model.Fault
	}
	var entries []entry // bound: the listing
	for _, e := range l.model.List(directory) {
		entries = append(entries, entry{name: e.Name, dir: e.Directory})
	}
	return entries, nil
}

func (l *listed) configInUse() string {
	if l.model.TextName != "" {
		return l.model.TextName
	}
	return configFile
}

// Exists implements modelFiles.
func (l *listed) Exists(name string) bool { return l.model.Has(name) }

// Read implements modelFiles.
func (l *listed) Read(name string) ([]byte, error) {
	if l.model.Fault != nil {
		return nil, l.model.Fault
	}
	if name != l.model.TextName {
		_, shown := l.paths()
		return nil, infer.Errorf(infer.Internal, "failed to open text file for read %s/%s: No such file or directory", shown, name)
	}
	return l.model.Text, nil
}

// Config implements modelFiles.
func (l *listed) Config(limit int64) (file string, text []byte, err error) {
	name := l.configInUse()
	_, shown := l.paths()
	if file = shown + "/" + name; !l.Exists(name) {
		return file, nil, nil
	}
	text, err = l.Read(name)
	return file, text[:min(int64(len(text)), limit)], err
}

func (l *listed) paths() (path, shown string) { return "", l.location.Join(l.model.Name) }

func (l *listed) isRenamed() bool { return false }

// Close implements modelFiles.
func (*listed) Close() {}

// footprint covers keys, sizes and versions. Deleting an object is a change, and so is copying an
// older one over it with its old time.
func (l *listed) footprint() Footprint {
	config, _, _ := strings.Cut(l.configInUse(), "/")
	p := Footprint{Config: config, Parts: make(map[string]uint64)}
	var name string
	sum := fnv.New64a()
	for _, o := range l.model.Objects {
		top, rest, _ := strings.Cut(o.Key, "/")
		if passing(top) || passing(filepath.Base(o.Key)) || strings.Contains(o.Key, "__pycache__/") {
			continue
		}
		// The keys ascend, but "1-a" lies between "1" and "1/a".
		if top != name {
			name = top
			sum.Reset()
			if before, again := p.Parts[top]; again {
				add(sum, "", before)
			}
		}
		version := o.Version
		if version == "" {
			version = o.Modified.UTC().String()
		}
		add(sum, rest, uint64(o.Size))
		add(sum, version)
		p.Parts[top] = sum.Sum64()
	}
	return p
}

// openStore opens a repository in a store and lists it.
func (r *Roots) openStore(l objectstore.Location) (*rootDir, error) {
	if r.options.Objects == nil {
		unsupported := l.Unsupported()
		return nil, infer.Errorf(infer.Internal, "%s (Triton supports that; this server only reads directories: copy %s into one first.)", unsupported, l)
	}
	variable := mountVariables[l.Scheme]
	workspace := copies.NewWorkspace(r.options.Mounts[l.Scheme], r.options.Log)
	workspace.Sweep()
	texts := []string{configFile}
	if r.options.ConfigName != "" {
		texts = []string{"configs/" + r.options.ConfigName + ".pbtxt", configFile}
	}
	l.Named = true
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	if r.options.Stop != nil {
		panics.Go(r.options.Log, panics.Models, func() {
			select {
			case <-r.options.Stop:
				end(infer.Errorf(infer.Unavailable, "Server exiting"))
			case <-ctx.Done():
			}
		}, nil)
	}
	m, err := mirror.Open(ctx, mirror.Config{
		Location: l, Open: r.options.Objects, Workspace: workspace, Variable: variable, Texts: texts, Changed: r.storeChanged,
		Stall: r.options.StoreStall, Log: r.options.Log,
	})
	if err != nil {
		return nil, err
	}
	return &rootDir{store: m, copies: workspace, shown: l.String()}, nil
}

// storeChanged reports that a listing differs from the previous one.
func (r *Roots) storeChanged() {
	select {
	case r.changed <- struct{}{}:
	default: // already reported
	}
}

// Changed has a value when the listing of a store has changed since the last value was received.
func (r *Roots) Changed() <-chan struct{} { return r.changed }

// Renew begins new listings of stores whose last listing is older than age, and new looks at
// archives of environments. It does not wait.
func (r *Roots) Renew(age time.Duration) {
	if r.archives != nil && age == 0 {
		r.archives.Renew()
	}
	for _, o := range r.all() {
		if o.store != nil {
			o.store.Renew(age)
		}
	}
}

// Stores lists the repositories in stores.
func (r *Roots) Stores() []*mirror.Mirror {
	var stores []*mirror.Mirror // bound: the repositories
	for _, o := range r.all() {
		if o.store != nil {
			stores = append(stores, o.store)
		}
	}
	return stores
}

// Look lists a model again in the stores that have it, or in all stores if no repository has the
// name. So the load of a model from a directory waits for no store. It returns the first error.
func (r *Roots) Look(ctx context.Context, name string) error {
	var in []*mirror.Mirror // bound: the repositories
	for _, m := range r.Stores() {
		if m.Model(name) != nil {
			in = append(in, m)
		}
	}
	if len(in) == 0 && len(r.Find(name)) == 0 && IsName(name) {
		in = r.Stores()
	}
	failures := make([]error, len(in)) // bound: the repositories
	var all sync.WaitGroup
	for i, m := range in {
		all.Go(panics.Guard(r.options.Log, panics.Models, func() { _, failures[i] = m.Look(ctx, name) }, func(err error) { failures[i] = err }))
	}
	all.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// source is the store's part of a description, for Fetch. It is immutable.
type source struct {
	mirror *mirror.Mirror
	model  *mirror.Model
	given  *kserve.ModelConfig
}

// InStore reports whether the files of the model are in a store: Fetch copies them.
func (d *Description) InStore() bool { return d.store != nil && d.Directory == "" }

// Fetched is a model whose files are on the disk.
type Fetched struct {
	*Description
	Files Footprint // of the fetched files
	// Copy has the model's files, Environment those of its execution environment; each is nil
	// unless it is in a store. The caller of Fetch is a user of both.
	Copy, Environment *copies.Copy
}

// Any reports whether anything was fetched.
func (f Fetched) Any() bool { return f.Copy != nil || f.Environment != nil }

// Drop releases the copies.
func (f Fetched) Drop() {
	f.Copy.Drop()
	f.Environment.Drop()
}

// Fetch copies the files of a model in a store, and the archive of its execution environment if
// that is in one. Other models are returned unchanged. If objects have changed since the model was
// read, it is read again: description and footprint are those of the copy. reread, unless nil, is
// called with nil before such a read, or before the look at the environment, and with the footprint
// afterwards. If that fails, it is called with nil only.
func (r *Roots) Fetch(ctx context.Context, d *Description, files Footprint, reread func(files *Footprint)) (f Fetched, err error) {
	f.Description, f.Files = d, files
	if d.InStore() {
		if f.Description, f.Files, f.Copy, err = r.fetchModel(ctx, d, files, reread); err != nil {
			return Fetched{}, err
		}
	}
	if f.archive == nil {
		return f, nil
	}
	if reread != nil {
		reread(nil)
	}
	if f.Description, f.Files, f.Environment, err = r.fetchEnvironment(ctx, f.Description, f.Files); err != nil {
		f.Drop()
		return Fetched{}, err
	}
	if reread != nil {
		read := f.Files // reread may keep it
		reread(&read)
	}
	return f, nil
}

// FetchFiles is Fetch for an examination: it asks no store that the model's configuration names. A
// model whose execution environment is in such a store is returned without one.
func (r *Roots) FetchFiles(ctx context.Context, d *Description, files Footprint) (f Fetched, err error) {
	f.Description, f.Files = d, files
	if d.InStore() {
		if f.Description, f.Files, f.Copy, err = r.fetchModel(ctx, d, files, nil); err != nil {
			return Fetched{}, err
		}
	}
	if a := f.archive; a != nil && a.err == nil && a.inside == "" {
		local := *f.Description
		local.Config = config.Clone(local.Config)
		delete(local.Config.Parameters, environmentParameter)
		f.Description = &local
		return f, nil
	}
	if f.Description, f.Files, _, err = r.fetchEnvironment(ctx, f.Description, f.Files); err != nil {
		f.Drop()
		return Fetched{}, err
	}
	return f, nil
}

// fetchModel is Fetch for the files of a model in a store.
func (r *Roots) fetchModel(ctx context.Context, d *Description, files Footprint, reread func(files *Footprint)) (*Description, Footprint, *copies.Copy, error) {
	for try := 1; ; try++ {
		c, err := d.store.mirror.Copy(ctx, d.store.model, d.serves)
		if err == nil {
			local := *d
			local.Directory = c.Path()
			_, shown := (&listed{d.store.model, d.store.mirror.Location()}).paths()
			local.open = func() (*Folder, error) { return openCopy(c, shown) }
			return &local, files, c, nil
		}
		if !errors.Is(err, objectstore.ErrChanged) {
			return nil, files, nil, err
		}
		if try == fetchTries {
			return nil, files, nil, infer.Errorf(infer.Unavailable, "model '%s' of %s changes while it is copied: %d copies were started, and none was completed; load it when its upload has ended",
				d.Name, d.store.mirror.Location(), try)
		}
		if reread != nil {
			reread(nil)
		}
		if d, files, err = r.again(ctx, d, files, time.Duration(try)*100*time.Millisecond); err != nil {
			return nil, files, nil, err
		}
		if reread != nil {
			read := files // reread may keep it
			reread(&read)
		}
	}
}

// again lists and reads a model again, after a pause for the upload to continue.
func (r *Roots) again(ctx context.Context, d *Description, files Footprint, pause time.Duration) (*Description, Footprint, error) {
	wait := time.NewTimer(pause)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, files, context.Cause(ctx)
	}
	m := d.store.mirror
	model, err := m.Look(ctx, d.Name)
	if err != nil {
		return nil, files, err
	}
	if model == nil {
		return nil, files, NotFound(d.Name)
	}
	return r.read(&listed{model, m.Location()}, m, d.Identity(), d.store.given)
}

// serves reports whether an object is part of a model's copy: all except unselected versions. An
// environment may be in any of them.
func (d *Description) serves(key string) bool {
	top, _, _ := strings.Cut(key, "/")
	if !isDigits(top) || strings.Contains(environmentValue(d.Config), directoryVariable) {
		return true
	}
	for _, number := range d.Versions {
		if top == strconv.FormatInt(number, 10) {
			return true
		}
	}
	return false
}

// FetchAll copies whole repositories from stores, with all versions of all models, into one
// directory each, by the URL as the operator wrote it. Close removes them. A model that cannot be
// copied although its store answers gets an empty directory, and faults has the reason by its path.
//
// bound: the models of the repository
func (r *Roots) FetchAll(ctx context.Context) (directories map[string]string, faults map[string]error, err error) {
	directories, faults = make(map[string]string), make(map[string]error)
	for _, o := range r.all() {
		if o.store == nil {
			continue
		}
		whole, err := o.copies.Make("repository")
		if err != nil {
			return nil, nil, infer.Errorf(infer.Internal, "make a directory for %s: %v", o.shown, err)
		}
		directories[o.store.Location().Text] = whole.Path()
		for _, name := range o.store.Models() {
			at := filepath.Join(whole.Path(), name)
			fault, err := o.copyTo(ctx, o.store.Model(name), at)
			if err != nil {
				return nil, nil, err
			}
			if fault != nil {
				faults[at] = fault
			}
		}
		for _, name := range o.store.Models() { // after all models: one of them may be a directory of environments
			at := filepath.Join(whole.Path(), name)
			if faults[at] != nil {
				continue
			}
			fault, err := r.fetchBeside(ctx, o, o.store.Model(name), whole.Path())
			if err != nil {
				return nil, nil, err
			}
			if fault != nil {
				faults[at] = fault
			}
		}
	}
	return directories, faults, nil
}

// fetchBeside copies the execution environment of a model that lies beside it in the store to the
// same place beside its copy. A fault concerns only that model.
func (r *Roots) fetchBeside(ctx context.Context, o *rootDir, model *mirror.Model, whole string) (fault, err error) {
	location := o.store.Location()
	l := &listed{model, location}
	c, err := r.readConfig(l)
	if err != nil {
		return nil, nil //nolint:nilerr // it is read again from the copy
	}
	a := r.archiveOf(c, l)
	if _, remote, _ := objectstore.Parse(environmentValue(c)); a == nil || remote || a.inside != "" {
		return nil, nil
	}
	if a.err != nil {
		return a.err, nil
	}
	below, inside := path.Clean(a.location.Path), true // bound: the config
	if location.Path != "" {
		below, inside = strings.CutPrefix(below, location.Path+"/")
	}
	at := filepath.Join(whole, filepath.FromSlash(below))
	if _, err := os.Lstat(at); err == nil || !inside {
		return nil, nil
	}
	fetched, fault := r.archives.Fetch(ctx, a.location)
	switch {
	case fault == nil:
	case ctx.Err() != nil || errors.Is(fault, objectstore.ErrUnreachable):
		return nil, fault
	default:
		return fault, nil
	}
	defer fetched.Drop()
	if err = os.MkdirAll(filepath.Dir(at), 0o700); err == nil {
		err = os.Rename(fetched.Path, at)
	}
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "place the execution environment %s: %v", a.location, err)
	}
	return nil, nil
}

// copyTo copies a whole model to a new path. A fault concerns only that model and leaves an empty
// directory.
func (o *rootDir) copyTo(ctx context.Context, model *mirror.Model, at string) (fault, err error) {
	if fault = model.Fault; fault == nil {
		var c *copies.Copy
		if c, fault = o.store.Copy(ctx, model, func(string) bool { return true }); fault == nil {
			err = os.Rename(c.Path(), at)
			c.Drop()
		}
	}
	switch {
	case fault == nil:
	case ctx.Err() != nil || errors.Is(fault, objectstore.ErrUnreachable):
		return nil, fault
	default:
		err = os.Mkdir(at, 0o700)
	}
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "place model '%s' of %s: %v", model.Name, o.shown, err)
	}
	return fault, nil
}
