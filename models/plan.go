package models

import (
	"slices"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// source is what a model is or was to be loaded from.
type source struct {
	*repository.Description
	upload *repository.Upload   // where the model lies if it is not in the repository
	files  repository.Footprint // when it was read; of a model with an upload nothing
	// configured says that the configuration has come with a load request.
	configured bool
}

// source reads one model, with the configuration that is given, if one is, in the
// place of its own. Errors are those of Repository.Read.
func (r *Registry) source(id repository.Identity, given *kserve.ModelConfig) (*source, error) {
	d, files, err := r.config.Repository.Read(id, given)
	if err != nil {
		return nil, err
	}
	return &source{Description: d, files: files, configured: given != nil}, nil
}

// plan says what a model needs to be served from another source. Each version of
// the new source is in one of the first three lists; all ascend.
type plan struct {
	keep   []int64 // goes on as it is
	update []int64 // needs other instances
	load   []int64
	leave  []int64 // serves, and is to be unloaded when the others are up
}

// planChange compares what a model is served from with what it is to be served
// from; was is nil if it is not served. Serving are the versions that are ready.
func planChange(was, now *source, serving []int64) plan {
	var p plan
	for _, number := range serving {
		if !slices.Contains(now.Versions, number) {
			p.leave = append(p.leave, number)
		}
	}
	differ := config.Differ
	if was != nil && was.upload == nil && now.upload == nil {
		differ = config.Compare(was.Config, now.Config)
	}
	for _, number := range now.Versions {
		switch {
		case differ == config.Differ, !slices.Contains(serving, number), !was.files.SameFor(now.files, number):
			p.load = append(p.load, number)
		case differ == config.GroupsDiffer:
			p.update = append(p.update, number)
		default:
			p.keep = append(p.keep, number)
		}
	}
	return p
}
