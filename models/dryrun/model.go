package dryrun

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Model is what a start would find of a model before code of the model runs.
type Model struct {
	Identity repository.Identity
	// Directory and File, its configuration, are as the operator would write them; "" if the
	// model is not in one place. The file need not be there.
	Directory, File string
	Description     *repository.Description // nil if the model cannot be read
	// Versions are those that would be loaded, with what was found of each.
	Versions map[int64]version.Examination
	// Errors would fail the load of all versions, whatever the model says.
	Errors []error
}

// Config is that of the highest version that would be loaded, nil if it is not whole.
func (e *Model) Config() *kserve.ModelConfig {
	if e.Description == nil || len(e.Description.Versions) == 0 {
		return nil
	}
	return e.Versions[slices.Max(e.Description.Versions)].Config
}

// Examiner reads models as a registry does.
type Examiner struct {
	Repository *repository.Roots
	Loader     *version.Loader
	Host       func(model string) backend.Host // what instances of a model would get
}

// Models reads the models, all or those that are named, with the models that ensembles among them are
// composed of. The list is in the order of their names.
func (x Examiner) Models(ctx context.Context, names []string) ([]*Model, error) {
	ids, rejected, err := x.Repository.Scan()
	if err != nil {
		return nil, err
	}
	all := make(map[repository.Identity]*Model, len(ids))
	wanted := make(repository.Set)
	for _, id := range ids {
		if names == nil || slices.Contains(names, id.Name) {
			wanted[id] = true
		}
	}
	for _, name := range names {
		if len(x.Repository.Find(name)) == 0 {
			id := repository.Identity{Name: name}
			all[id] = &Model{Identity: id, Errors: []error{repository.NotFound(name)}}
		}
	}
	for todo := wanted.Sorted(); len(todo) > 0; todo = todo[1:] {
		id := todo[0]
		if all[id] != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var e *Model
		if _, no := rejected[id]; no {
			e = &Model{Identity: id, Errors: []error{repository.NotUnique(id.Name)}}
		} else {
			e = x.one(ctx, id)
		}
		all[id] = e
		if e.Description != nil {
			for part := range e.Description.Composing() {
				todo = append(todo, x.Repository.Find(part.Name)...)
			}
		}
	}
	list := make([]*Model, 0, len(all))
	for _, id := range repository.KeysOf(all).Sorted() {
		list = append(list, all[id])
	}
	for _, e := range list {
		checkSteps(e, list)
	}
	return list, nil
}

func (x Examiner) one(ctx context.Context, id repository.Identity) *Model {
	e := &Model{Identity: id, Versions: make(map[int64]version.Examination)}
	e.Directory, e.File = x.Repository.Where(id)
	d, files, err := x.Repository.Read(id, nil)
	if err == nil {
		var local repository.Fetched
		local, err = x.Repository.FetchFiles(ctx, d, files)
		d = local.Description
		defer local.Drop()
	}
	if err != nil {
		e.Errors = append(e.Errors, err)
		return e
	}
	e.Description = d
	if len(d.Versions) == 0 {
		e.Errors = append(e.Errors, d.Check())
	}
	for _, number := range d.Versions {
		e.Versions[number] = x.Loader.Examine(ctx, version.Source{Description: d, Version: number, Host: x.Host(d.Name)})
	}
	return e
}

// checkSteps compares an ensemble with the models that its steps call, as far as their
// configurations are known.
func checkSteps(e *Model, all []*Model) {
	if e.Description == nil || !e.Description.IsEnsemble() || e.Config() == nil {
		return
	}
	composing := make(map[string]*kserve.ModelConfig)
	var missing []string
	var unserved error
	known := true
	steps := e.Description.Composing()
	for _, step := range slices.SortedFunc(maps.Keys(steps), repository.Identity.Compare) {
		part := called(step, all)
		if part == nil {
			missing = append(missing, step.String())
			continue
		}
		c := part.Config()
		composing[step.Name] = c
		known = known && c != nil && len(c.GetInput())+len(c.GetOutput()) > 0
		for _, number := range steps[step] {
			if number != infer.LatestVersion && part.Description != nil && !slices.Contains(part.Description.Versions, number) && unserved == nil {
				unserved = infer.Errorf(infer.InvalidArg, "ensemble '%s' depends on '%s' whose required version %d is not loaded.", e.Identity, part.Identity, number)
			}
		}
	}
	if len(missing) > 0 {
		e.Errors = append(e.Errors, infer.Errorf(infer.InvalidArg, "ensemble %s contains models that are not available or ambiguous: %s", e.Identity, strings.Join(missing, ", ")))
		return
	}
	if last := circle(e, all); last != nil {
		e.Errors = append(e.Errors, infer.Errorf(infer.InvalidArg, "circular dependency between ensembles: %s -> ... -> %s -> %s", e.Identity, last.Identity, e.Identity))
		return
	}
	if unserved != nil {
		e.Errors = append(e.Errors, unserved)
		return
	}
	if !known {
		return
	}
	if _, err := config.CheckComposition(e.Config(), composing); err != nil {
		e.Errors = append(e.Errors, err)
	}
}

// called returns the model that a step names, nil if it is not there.
func called(step repository.Identity, all []*Model) *Model {
	at := slices.IndexFunc(all, func(o *Model) bool {
		return o.Identity.Name == step.Name && (step.Namespace == "" || o.Identity.Namespace == step.Namespace) && o.Directory != ""
	})
	if at < 0 {
		return nil
	}
	return all[at]
}

// circle returns the last model on a way of steps from e to e, nil if there is no way.
func circle(e *Model, all []*Model) *Model {
	passed := make(map[*Model]bool)
	var search func(at *Model) *Model
	search = func(at *Model) *Model {
		if at.Description == nil || passed[at] {
			return nil
		}
		passed[at] = true
		for _, step := range slices.SortedFunc(maps.Keys(at.Description.Composing()), repository.Identity.Compare) {
			next := called(step, all)
			if next == e {
				return at
			}
			if next == nil {
				continue
			}
			if last := search(next); last != nil {
				return last
			}
		}
		return nil
	}
	return search(e)
}
