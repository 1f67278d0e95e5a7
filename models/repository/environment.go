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

// directoryVariable stands for the model's directory at the start of an EXECUTION_ENV_PATH value.
const directoryVariable = "$$TRITON_MODEL_DIRECTORY"

// environmentParameter is the parameter that names the execution environment.
const environmentParameter = "EXECUTION_ENV_PATH"

// archive is a model's execution environment in an object store, as named by its configuration.
type archive struct {
	location objectstore.Location
	name     string // its name in mirror.Archives
	err      error  // why it is unavailable; the model can still be read
	inside   string // path inside the model's directory; then all other fields are empty
}

// archiveOf finds the environment that a configuration names in a store: by a URL, or by a path
// from the directory of a model in a store, which l is then; else l is nil. It returns nil if the
// environment is not in a store. The part of a URL below the bucket is used as written, except for
// "..".
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
		model := path.Join(l.location.Path, l.model.Name) // bound: the config
		location = l.location.At(model + rest)
		clean := path.Clean(model + rest) // bound: the config
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

// environmentValue is the EXECUTION_ENV_PATH of a model.
func environmentValue(c *kserve.ModelConfig) string {
	return c.GetParameters()[environmentParameter].GetStringValue()
}

// names returns the archive's name for a footprint.
func (a *archive) names() []string {
	if a == nil || a.name == "" {
		return nil
	}
	return []string{a.name}
}

// outside sums paths outside a model's directory: files as they are, and archives in stores as last
// seen, so that it waits for no store.
//
// bound: the caller's paths: imports, of which Imports accepts a limited number, and an environment
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

// LookOutside asks the stores for the archives among the paths of a footprint, and waits.
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

// fetchEnvironment brings a model's environment to the disk if it is in a store, and returns the
// resulting description. The copy is nil if the environment is not in a store.
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

// unfetched is the error of an environment that cannot be fetched. It does not tell clients which
// objects exist.
func (d *Description) unfetched(err error) error {
	own := infer.AsError(err)
	return &infer.Error{
		Code: own.Code, Message: fmt.Sprintf("the execution environment of model '%s' cannot be fetched, the server's log has the reason", d.Name),
		Detail: own.Detailed().Message,
	}
}
