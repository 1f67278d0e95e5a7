package repository

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// Register adds a repository. Its directory where, which need not exist, has the model name; its
// other directories keep their own names. Errors are *infer.Error with Triton's text: InvalidArg if
// there is no such repository, AlreadyExists if the path or the name is registered.
func (r *Roots) Register(path, where, name string) error {
	absolute, err := filepath.Abs(path)
	if err != nil || path == "" {
		return errNoRepository("register", path)
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return errNoRepository("register", path)
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	all := r.all()
	if err := refuseTwice(all, path, absolute, name); err != nil {
		_ = root.Close()
		return err
	}
	added := &rootDir{root: root, path: absolute, shown: path, registered: true, where: where, name: name}
	all = append(slices.Clone(all), added) // bound: the repositories, which are directories
	r.list.Store(&all)
	return nil
}

func refuseTwice(all []*rootDir, path, absolute, name string) error {
	for _, o := range all {
		if o.path == absolute {
			return infer.Errorf(infer.AlreadyExists, "model repository '%s' has already been registered", path)
		}
	}
	for _, o := range all {
		if o.registered && o.name == name {
			return infer.Errorf(infer.AlreadyExists, "failed to register '%s', there is a conflicting mapping for '%s'", name, name)
		}
	}
	return nil
}

// Unregister removes a repository. Models that were read from it stay as they are.
func (r *Roots) Unregister(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return errNoRepository("unregister", path)
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	all := slices.Clone(r.all()) // bound: the repositories
	at := slices.IndexFunc(all, func(o *rootDir) bool { return o.registered && o.path == absolute })
	if at < 0 {
		return errNoRepository("unregister", path)
	}
	_ = all[at].root.Close() // goroutines that still read it have opened a folder, or find it gone
	all = slices.Delete(all, at, at+1)
	r.list.Store(&all)
	return nil
}

func errNoRepository(what, path string) error {
	return infer.Errorf(infer.InvalidArg, "failed to %s '%s', repository not found", what, path)
}

// gone reports whether err means that the repository has been unregistered.
func (o *rootDir) gone(err error) bool { return o.registered && errors.Is(err, os.ErrClosed) }

// directoryOf returns the directory for a model of that name.
func (o *rootDir) directoryOf(name string) (directory string, has bool) {
	directory = name
	switch {
	case !o.registered:
	case name == o.name:
		directory = o.where
	case name == o.where:
		return "", false
	}
	return directory, IsName(directory)
}

// modelIn returns the name of the model in a directory.
func (o *rootDir) modelIn(directory string) (name string, has bool) {
	switch {
	case !o.registered:
	case directory == o.where:
		return o.name, true
	case directory == o.name:
		return "", false
	}
	return directory, true
}

// having returns the repositories that may contain a model of that name: the one registered with
// the name, or else all.
func having(all []*rootDir, name string) []*rootDir {
	for i, o := range all {
		if o.registered && o.name == name {
			return all[i : i+1]
		}
	}
	return all
}
