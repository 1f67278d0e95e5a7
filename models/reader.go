package models

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
)

// reader reads the models that a change needs: the named ones and the parts of ensembles. It reads
// no file under the catalog's lock. For models in stores it uses the last listing; models that a
// request names are listed again first.
type reader struct {
	roots   *repository.Roots
	catalog *catalog.Catalog
}

// source reads one model, with the given configuration instead of its own if there is one. Errors
// are those of Roots.Read.
func (r reader) source(id repository.Identity, given *kserve.ModelConfig) (*catalog.Source, error) {
	d, files, err := r.roots.Read(id, given, r.catalog.Imported(id)...)
	if err != nil {
		return nil, err
	}
	return &catalog.Source{Description: d, Files: files}, nil
}

// read reads a model that a request wants loaded. It returns nil if the model is served from just
// that.
func (r reader) read(ctx context.Context, id repository.Identity, o override) (*catalog.Source, error) {
	if o.upload == nil {
		if err := r.roots.Look(ctx, id.Name); err != nil {
			return nil, err
		}
	}
	switch {
	case o.upload != nil:
		d, err := r.roots.ReadUpload(o.upload, id.Name, o.config)
		if err != nil {
			return nil, err
		}
		return &catalog.Source{Description: d, Upload: o.upload, Charge: o.charge}, nil
	case o.config != nil:
		s, err := r.source(id, o.config)
		if err == nil {
			s.Charge = o.charge
		}
		return s, err
	}
	outside := r.catalog.Outside(id)
	if err := r.roots.LookOutside(ctx, outside...); err != nil {
		return nil, err
	}
	files, err := r.roots.Footprint(id, outside...)
	if err != nil {
		return nil, err
	}
	if r.catalog.IsServed(id, files) {
		return nil, nil //nolint:nilnil // as the doc says
	}
	return r.source(id, nil)
}

// differs reports whether a load that is requested now differs from a load of the model from s.
func (r reader) differs(id repository.Identity, s *catalog.Source, o override) bool {
	if s == nil || s.Upload != nil || o.upload != nil {
		return true
	}
	files, err := r.roots.Footprint(id, s.Files.Paths()...)
	if err != nil {
		return false // such a load comes to nothing
	}
	if o.config == nil || !s.Files.Same(files) {
		return !s.Files.Same(files)
	}
	now, err := r.source(id, o.config)
	return err == nil && !proto.Equal(now.Config, s.Config)
}

// readNeighbours adds to sources the models that unchanged ensembles among the targets would use if
// they were loaded now and that do not serve: a model that has come back to the repository.
func (r reader) readNeighbours(ctx context.Context, targets []repository.Identity, sources map[repository.Identity]*catalog.Source, problems map[repository.Identity]error) {
	for _, id := range targets {
		if sources[id] != nil {
			continue
		}
		r.readSteps(ctx, r.catalog.StepsOf(id), sources, problems)
	}
}

// readComposing adds to sources the models that ensembles among them are composed of, unless they
// are served. Unreadable models are left out: the ensembles report them.
func (r reader) readComposing(ctx context.Context, sources map[repository.Identity]*catalog.Source, problems map[repository.Identity]error) {
	todo := repository.KeysOf(sources).Sorted() // bound: the models of the repository
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		todo = append(todo, r.readSteps(ctx, repository.KeysOf(sources[id].Composing()), sources, problems)...)
	}
}

// readSteps adds to sources the models that the steps of an ensemble may refer to, and returns the
// added ones. It adds errors to problems.
func (r reader) readSteps(ctx context.Context, steps repository.Set, sources map[repository.Identity]*catalog.Source, problems map[repository.Identity]error) (read []repository.Identity) {
	for _, step := range steps.Sorted() {
		if len(r.catalog.NotServed(r.catalog.Candidates(step))) > 0 {
			if err := r.roots.Look(ctx, step.Name); err != nil {
				// bound: the models of the repository
				problems[repository.Identity{Namespace: step.Namespace, Name: step.Name}] = err
				continue
			}
		}
		for _, part := range r.partsToRead(step) {
			if sources[part] != nil || problems[part] != nil {
				continue
			}
			s, err := r.source(part, nil)
			if err != nil {
				problems[part] = err // bound: the models of the repository
				continue
			}
			sources[part] = s         // bound: the models of the repository
			read = append(read, part) // bound: the models of the repository
		}
	}
	return read
}

// partsToRead lists the models that a step may refer to and that are not served. If several
// repositories have the name, it lists them all, as a load by name does: a model that is loaded
// elsewhere does not replace the ensemble's neighbour.
func (r reader) partsToRead(step repository.Identity) []repository.Identity {
	parts := r.catalog.Candidates(step)
	if len(parts) > 1 {
		parts = r.roots.Find(step.Name)
	}
	return r.catalog.NotServed(parts)
}
