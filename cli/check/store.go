package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/objectstore"
)

// fetch copies whole repositories from object stores, and replaces them in o with the copies.
// restore removes the copies, and replaces their paths in the report with the stores.
func (c *check) fetch(ctx context.Context, o *nereid.Options) (restore func(), err error) {
	var urls []string
	var named []objectstore.Location
	for _, path := range o.Repository.Paths {
		location, inStore, _ := objectstore.Parse(path)
		if !inStore {
			continue
		}
		location.Named = true
		if err := noModel(ctx, o.Repository.Objects, location); err != nil {
			return nil, err
		}
		urls, named = append(urls, path), append(named, location)
	}
	if len(urls) == 0 {
		return func() {}, nil
	}
	opened, err := repository.Open(urls, repository.Options{Objects: o.Repository.Objects, Mounts: o.Repository.Mounts, Stop: ctx.Done(), Log: o.Logger})
	if err != nil {
		return nil, err
	}
	directories, faults, err := opened.FetchAll(ctx)
	if err != nil {
		opened.Close()
		return nil, err
	}
	c.uncopied = faults
	open := o.Repository.Objects
	o.Repository.Objects = func(ctx context.Context, l objectstore.Location) (objectstore.Bucket, error) {
		// The operator has named these stores, though from here on the repositories are
		// directories.
		l.Named = l.Named || slices.ContainsFunc(named, func(n objectstore.Location) bool { return strings.EqualFold(n.Endpoint, l.Endpoint) })
		return open(ctx, l)
	}
	o.Repository.Paths = slices.Clone(o.Repository.Paths)
	var names []string
	for i, path := range o.Repository.Paths {
		location, remote, _ := objectstore.Parse(path)
		for url, directory := range directories {
			fetched, _, _ := objectstore.Parse(url)
			if !remote || !fetched.Same(location) { // a location that is named twice is fetched once
				continue
			}
			o.Repository.Paths[i] = directory
			names = append(names, directory, location.Join(""))
		}
	}
	return func() {
		c.report.rename(strings.NewReplacer(names...))
		opened.Close()
	}, nil
}

// errFound ends a listing.
var errFound = errors.New("found")

// noModel rejects the URL of a model or of a version, because a repository is needed. An
// unreachable store is not an error here.
func noModel(ctx context.Context, open objectstore.Opener, l objectstore.Location) error {
	if open == nil {
		return nil
	}
	bucket, err := open(ctx, l)
	if err != nil {
		return nil //nolint:nilerr // repository.Open reports it
	}
	defer bucket.Close()
	has := func(name string) bool {
		return errors.Is(bucket.List(ctx, name, func(o objectstore.Object) error {
			if o.Key == name && !o.Directory {
				return errFound
			}
			return nil
		}), errFound)
	}
	parent, name, below := l.Object()
	switch {
	case has("config.pbtxt"), has("1/" + scriptName):
		if !below {
			return command.Usagef("%s is a model: move it into a folder of the bucket, and name that folder", l)
		}
		return command.Usagef("%s is a model: want its repository, which is %s", l, parent)
	case has(scriptName) && numbered(name) && below:
		return command.Usagef("%s is a version directory: want the repository, which is two levels above it", l)
	}
	return nil
}

// rename replaces paths in the report.
func (r *report) rename(names *strings.Replacer) {
	for _, m := range r.Models {
		m.Directory = names.Replace(m.Directory)
	}
	for _, f := range r.Findings {
		f.File, f.Text, f.Remedy = names.Replace(f.File), names.Replace(f.Text), names.Replace(f.Remedy)
	}
}
