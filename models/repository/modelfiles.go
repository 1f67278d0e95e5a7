package repository

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
)

// modelFiles is what a repository has of one model: the folder in which it lies, or what the listing of a store says of it.
// It is closed by the caller that got it.
type modelFiles interface {
	// list returns what is in a directory, "." for the model's own.
	list(directory string) ([]entry, error)
	// configInUse is the file that describes the model; it may be missing, which Exists tells.
	configInUse() string
	Exists(name string) bool
	// Read returns a whole file; of what lies in a store, the configuration alone.
	Read(name string) ([]byte, error)
	// Config returns the beginning of the configuration and its name, as the operator would write it.
	Config(limit int64) (file string, text []byte, err error)
	footprint() Footprint
	// place returns the directory as the kernel knows it, "" if the files are not here, and as the operator would write it.
	place() (path, shown string)
	// isRenamed says that the model has not the name of the directory, nor that in its configuration.
	isRenamed() bool
	Close()
}

var (
	_ modelFiles = (*Folder)(nil)
	_ modelFiles = (*listed)(nil)
)

func (f *Folder) place() (path, shown string) { return f.path, f.shown }

func (f *Folder) isRenamed() bool { return f.renamed }

// readConfig parses the model's file, which may be missing unless auto-complete
// is off.
func (r *Roots) readConfig(f modelFiles) (*kserve.ModelConfig, error) {
	file := f.configInUse()
	if !r.options.DisableAutoComplete && !f.Exists(file) {
		return &kserve.ModelConfig{}, nil
	}
	text, err := f.Read(file)
	if err != nil {
		return nil, err
	}
	_, shown := f.place()
	return config.ParseText(shown+"/"+file, text)
}

// firstContent lists the first sub-directory of a model, where the files are
// from which a backend is guessed.
func firstContent(f modelFiles, entries []entry) (content []config.File, err error) {
	for _, first := range entries {
		if !first.dir {
			continue
		}
		found, err := f.list(first.name)
		if err != nil {
			_, shown := f.place()
			return nil, infer.Errorf(infer.Internal, "failed to open directory %s/%s: %s", shown, first.name, strerror(err))
		}
		for _, e := range found {
			content = append(content, config.File{Name: e.name, Dir: e.dir})
		}
		return content, nil
	}
	return nil, nil
}
