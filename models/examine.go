package models

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Examined is the result of checking the files of one model without running its code.
type Examined struct {
	Identity repository.Identity
	// Directory and File, its configuration, are as the operator would write them; "" if the
	// model is not in one place. The file need not be there.
	Directory, File string
	Description     *repository.Description // nil if the model cannot be read
	// Versions are the versions that would be loaded, with the findings for each.
	Versions map[int64]version.Examination
	// Errors would fail the load of all versions, whatever the model's code does.
	Errors []error
}

// Config returns the configuration of the highest version that would be loaded, nil if it is
// incomplete.
func (e *Examined) Config() *kserve.ModelConfig {
	if e.Description == nil || len(e.Description.Versions) == 0 {
		return nil
	}
	return e.Versions[slices.Max(e.Description.Versions)].Config
}

// Examine reads the models as Start does, but loads none: all models, or the named ones together
// with the models that their ensembles call. The list is sorted by name. Examine needs no Start.
func (r *Registry) Examine(ctx context.Context, names []string) ([]*Examined, error) {
	ids, rejected, err := r.config.Repository.Scan()
	if err != nil {
		return nil, err
	}
	all := make(map[repository.Identity]*Examined, len(ids))
	wanted := make(repository.Set)
	for _, id := range ids {
		if names == nil || slices.Contains(names, id.Name) {
			wanted[id] = true
		}
	}
	for _, name := range names {
		if len(r.config.Repository.Find(name)) == 0 {
			id := repository.Identity{Name: name}
			all[id] = &Examined{Identity: id, Errors: []error{repository.NotFound(name)}}
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
		var e *Examined
		if _, no := rejected[id]; no {
			e = &Examined{Identity: id, Errors: []error{repository.NotUnique(id.Name)}}
		} else {
			e = r.examineOne(ctx, id)
		}
		all[id] = e
		if e.Description != nil {
			for part := range e.Description.Composing() {
				todo = append(todo, r.config.Repository.Find(part.Name)...)
			}
		}
	}
	list := make([]*Examined, 0, len(all))
	for _, id := range repository.KeysOf(all).Sorted() {
		list = append(list, all[id])
	}
	for _, e := range list {
		checkSteps(e, list)
	}
	return list, nil
}

func (r *Registry) examineOne(ctx context.Context, id repository.Identity) *Examined {
	e := &Examined{Identity: id, Versions: make(map[int64]version.Examination)}
	e.Directory, e.File = r.config.Repository.Where(id)
	d, files, err := r.config.Repository.Read(id, nil)
	if err == nil {
		var local repository.Fetched
		local, err = r.config.Repository.FetchFiles(ctx, d, files)
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
		e.Versions[number] = r.loader.Examine(ctx, version.Source{Description: d, Version: number, Host: host{r, &loadInProgress{model: d.Name}}})
	}
	return e
}

// checkSteps compares an ensemble with the models that its steps call, as far as their
// configurations are known.
func checkSteps(e *Examined, all []*Examined) {
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
	if last, found := catalog.LastOfCycle(e, func(at *Examined) []*Examined { return calls(at, all) }); found {
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

// called returns the model that a step names, or nil.
func called(step repository.Identity, all []*Examined) *Examined {
	at := slices.IndexFunc(all, func(o *Examined) bool {
		return o.Identity.Name == step.Name && (step.Namespace == "" || o.Identity.Namespace == step.Namespace) && o.Directory != ""
	})
	if at < 0 {
		return nil
	}
	return all[at]
}

// calls lists the models that the steps of e name, sorted by name.
func calls(e *Examined, all []*Examined) (list []*Examined) {
	if e.Description == nil {
		return nil
	}
	for _, step := range slices.SortedFunc(maps.Keys(e.Description.Composing()), repository.Identity.Compare) {
		if next := called(step, all); next != nil {
			list = append(list, next)
		}
	}
	return list
}
