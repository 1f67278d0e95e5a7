package repository

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/mirror"
	"github.com/nereid-serving/nereid/objectstore"
)

// directoryVariable stands for the model's directory in a value of EXECUTION_ENV_PATH, at its beginning.
const directoryVariable = "$$TRITON_MODEL_DIRECTORY"

// environmentParameter is the parameter of a configuration that names the execution environment.
const environmentParameter = "EXECUTION_ENV_PATH"

// archive is the execution environment of a model as its configuration names it in an object store.
type archive struct {
	location objectstore.Location
	name     string // that mirror.Archives knows it by
	err      error  // why it cannot be had; the model can be read all the same
	inside   string // of the model's directory, in which it lies; then all else is empty
}

// archiveOf finds the environment that a configuration names in a store: by a URL, or by a path from the directory of a model
// that lies in one, which l is then, and nil otherwise. Nil: it names none there. What a URL has below the bucket counts as
// it is written, but for "..".
func (r *Roots) archiveOf(c *kserve.ModelConfig, l *listed) *archive {
	value := environmentValue(c)
	location, remote, err := objectstore.Parse(value)
	if err != nil {
		return &archive{err: err}
	}
	if !remote {
		rest, relative := strings.CutPrefix(value, directoryVariable)
		if l == nil || !relative || !strings.HasPrefix(rest, "/") {
			return nil
		}
		model := path.Join(l.location.Path, l.model.Name)
		location = l.location.At(model + rest)
		clean := path.Clean(model + rest)
		if inside, below := strings.CutPrefix(clean, model+"/"); below {
			if inside == strings.TrimPrefix(rest, "/") {
				return nil // as a path of the copy
			}
			return &archive{inside: inside}
		}
	}
	location.Named = location.Endpoint == "" || slices.ContainsFunc(r.all(), func(o *rootDir) bool {
		return o.store != nil && strings.EqualFold(o.store.Location().Endpoint, location.Endpoint)
	})
	a := &archive{location: location}
	if r.archives == nil {
		a.err = location.Unsupported()
		return a
	}
	a.name, a.err = r.archives.Watch(location)
	return a
}

// environmentValue is EXECUTION_ENV_PATH of a model.
func environmentValue(c *kserve.ModelConfig) string {
	return c.GetParameters()[environmentParameter].GetStringValue()
}

// names lists the archive for a footprint.
func (a *archive) names() []string {
	if a == nil || a.name == "" {
		return nil
	}
	return []string{a.name}
}

// outside looks at what lies outside of a model's directory: at files as they are, and at archives in stores as they were seen
// last, so that no store is waited for.
func (r *Roots) outside(paths ...string) map[string]uint64 {
	var files, archives []string
	for _, p := range paths {
		if mirror.IsArchive(p) {
			archives = append(archives, p)
		} else {
			files = append(files, p)
		}
	}
	sums := outside(files...)
	for _, name := range archives {
		if sums == nil {
			sums = make(map[string]uint64, len(archives))
		}
		sums[name] = r.archives.Seen(name)
	}
	return sums
}

// LookOutside asks the stores for the archives among what a footprint has looked at, for its caller, who waits.
func (r *Roots) LookOutside(ctx context.Context, paths ...string) error {
	for _, p := range paths {
		if mirror.IsArchive(p) {
			if err := r.archives.Look(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchEnvironment has the environment of a model be on the disk if a store has it, and returns the model as it is then. The copy
// is nil if no store has it.
func (r *Roots) fetchEnvironment(ctx context.Context, d *Description, files Footprint) (*Description, Footprint, *copies.Copy, error) {
	a := d.archive
	switch {
	case a == nil:
		return d, files, nil, nil
	case a.err != nil:
		return nil, files, nil, d.unfetched(a.err)
	}
	local := *d
	if a.inside != "" {
		local.Environment = filepath.Join(d.Directory, filepath.FromSlash(a.inside))
		return &local, files, nil, nil
	}
	fetched, err := r.archives.Fetch(ctx, a.location)
	switch {
	case ctx.Err() != nil:
		return nil, files, nil, context.Cause(ctx)
	case err != nil:
		return nil, files, nil, d.unfetched(err)
	}
	local.Environment = fetched.Path
	if was, watched := files.Outside[a.name]; watched && was != fetched.Sum {
		files.Outside = maps.Clone(files.Outside) // others may hold it
		files.Outside[a.name] = fetched.Sum
	}
	return &local, files, fetched.Copy, nil
}

// unfetched returns the error of an environment that cannot be fetched. Clients do not learn which
// objects exist.
func (d *Description) unfetched(err error) error {
	own := infer.AsError(err)
	return &infer.Error{
		Code: own.Code, Message: fmt.Sprintf("the execution environment of model '%s' cannot be fetched, the log of the server says why", d.Name),
		Detail: own.Detailed().Message,
	}
}
