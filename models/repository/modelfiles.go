package repository

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// modelFiles is one model's entry in a repository: its folder, or its objects in a store's listing.
// The caller that got it closes it.
type modelFiles interface {
	// list returns the entries of a directory, "." for the model's own.
	list(directory string) ([]entry, error)
	// configInUse returns the name of the configuration file, which may be missing.
	configInUse() string
	Exists(name string) bool
	// Read returns a whole file; for a model in a store, only the configuration.
	Read(name string) ([]byte, error)
	// Config returns the start of the configuration and its file name, as the operator would write
	// it.
	Config(limit int64) (file string, text []byte, err error)
	footprint() Footprint
	// paths returns the directory's path, "" if the files are in a store, and the path as the
	// operator would write it.
	paths() (path, shown string)
	// isRenamed reports that the model's name differs from its directory and its configuration.
	isRenamed() bool
	Close()
}

var (
	_ modelFiles = (*Folder)(nil)
	_ modelFiles = (*listed)(nil)
)

func (f *Folder) paths() (path, shown string) { return f.path, f.shown }

func (f *Folder) isRenamed() bool { return f.renamed }

// readConfig parses the model's configuration file, which may be missing unless auto-complete is
// off.
func (r *Roots) readConfig(f modelFiles) (*kserve.ModelConfig, error) {
	file := f.configInUse()
	if !r.options.DisableAutoComplete && !f.Exists(file) {
		return &kserve.ModelConfig{}, nil
	}
	text, err := f.Read(file)
	if err != nil {
		return nil, err
	}
	_, shown := f.paths()
	return config.ParseText(shown+"/"+file, text)
}

// firstContent lists the first sub-directory of a model, from which a missing backend is guessed.
//
// bound: the entries of the directory
func firstContent(f modelFiles, entries []entry) (content []config.File, err error) {
	for _, first := range entries {
		if !first.dir {
			continue
		}
		found, err := f.list(first.name)
		if err != nil {
			_, shown := f.paths()
			return nil, infer.Errorf(infer.Internal, "failed to open directory %s/%s: %s", shown, first.name, strerror(err))
		}
		for _, e := range found {
			content = append(content, config.File{Name: e.name, Dir: e.dir})
		}
		return content, nil
	}
	return nil, nil
}
