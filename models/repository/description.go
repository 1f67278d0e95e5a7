package repository

import (
	"errors"
	"slices"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/mirror"
)

// Description is one model as its directory describes it. It is immutable and may be used by
// several goroutines.
type Description struct {
	Name string
	// Namespace is the model's, "" unless equal names may exist in several repositories.
	Namespace string
	// Directory is the absolute path of the model's directory, which holds the version directories.
	// It is "" for a model in a store before Fetch.
	Directory string
	// Config is the configuration file completed with names, placement and defaults: the input of
	// the model's own auto-complete. Finish makes the final configuration.
	Config *kserve.ModelConfig
	// Versions are the versions selected by the version policy, ascending; Check refuses an empty
	// list.
	Versions []int64
	// Warnings are lines for the log.
	Warnings []string
	// Doubts are doubts about the written configuration that its complete form does not show.
	Doubts []diagnosis.Doubt

	// Environment is the file that EXECUTION_ENV_PATH means, if Fetch has brought it from an object
	// store, else "".
	Environment string

	archive    *archive // nil unless a store has the environment
	repository *Roots
	open       func() (*Folder, error) // opens Directory
	store      *source                 // nil unless the model lies in a store
}

// Read reads one model, with the given configuration instead of its own if there is one. The
// footprint shows the files, and the imports, before the read. The error is an *infer.Error or a
// *config.ParseError, whose Detail is for the log; Triton logs it as a failed poll and does not
// show it to clients. NotFound means that no root has a directory of that name.
func (r *Roots) Read(id Identity, given *kserve.ModelConfig, imports ...string) (*Description, Footprint, error) {
	f, store, err := r.find(id)
	if err != nil {
		return nil, Footprint{}, err
	}
	defer f.Close()
	return r.read(f, store, id, given, imports...)
}

// read reads a model, which is in store unless that is nil.
func (r *Roots) read(f modelFiles, store *mirror.Mirror, id Identity, given *kserve.ModelConfig, imports ...string) (_ *Description, files Footprint, err error) {
	files = f.footprint() // changes during the read are then newer
	files.imported = outside(imports...)
	c := given
	if c != nil {
		c = config.Clone(c)
	} else if c, err = r.readConfig(f); err != nil {
		return nil, Footprint{}, err
	}
	path, _ := f.paths()
	inStore, _ := f.(*listed)
	archive := r.archiveOf(c, inStore)
	files.Outside = r.outside(append(environmentOf(c, path), archive.names()...)...) // bound: two names
	if f.isRenamed() {
		c.Name = id.Name
	}
	d, err := r.describe(f, id.Name, c)
	if err != nil {
		return nil, Footprint{}, err
	}
	d.Namespace, d.archive = id.Namespace, archive
	d.open = func() (*Folder, error) { return r.Open(id) }
	if inStore != nil {
		d.store = &source{store, inStore.model, given}
	}
	return d, files, nil
}

// ReadUpload reads a model whose files and configuration came with a request.
func (r *Roots) ReadUpload(u *copies.Copy, name string, given *kserve.ModelConfig) (*Description, error) {
	f, err := openCopy(u, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := r.describe(f, name, config.Clone(given))
	if err != nil {
		return nil, err
	}
	d.open = func() (*Folder, error) { return openCopy(u, name) }
	d.archive = r.archiveOf(d.Config, nil)
	return d, nil
}

// Identity returns the model's identity.
func (d *Description) Identity() Identity { return Identity{Namespace: d.Namespace, Name: d.Name} }

// Open opens the directory of the model.
func (d *Description) Open() (*Folder, error) { return d.open() }

// rules returns the rules for the repository's configurations.
func (r *Roots) rules() config.Rules {
	rules := config.Rules{Strict: r.options.DisableAutoComplete, MinCapability: r.options.MinCapability, Preferred: r.options.Preferred}
	if r.options.GPUs != nil {
		rules.GPUs = r.options.GPUs()
	}
	return rules
}

// describe completes and checks the configuration c of the model in f.
func (r *Roots) describe(f modelFiles, name string, c *kserve.ModelConfig) (*Description, error) {
	if agents := c.GetModelRepositoryAgents().GetAgents(); len(agents) > 0 {
		return nil, r.noAgent(agents[0].GetName())
	}
	entries, err := f.list(".")
	if err != nil {
		return nil, unopened(f, err)
	}
	content, err := firstContent(f, entries)
	if err != nil {
		return nil, err
	}
	doubts := slices.DeleteFunc(diagnosis.Doubts(c), func(d diagnosis.Doubt) bool { return d.Rule != diagnosis.RuleInstanceCount })
	if err := r.rules().Fill(c, name, content); err != nil {
		return nil, err
	}
	var directories []string // bound: the entries of the model's directory
	for _, e := range entries {
		if e.dir {
			directories = append(directories, e.name)
		}
	}
	path, _ := f.paths()
	d := &Description{Name: name, Directory: path, Config: c, Doubts: doubts, repository: r}
	present, ignored := config.PresentVersions(directories)
	selected, missing := config.SelectVersions(c, present)
	d.Versions = selected
	d.Warnings = slices.Concat(ignored, missing, config.MetricWarnings(c)) // bound: directories and the config
	return d, nil
}

// unopened is the error of a model's directory that cannot be listed.
func unopened(f modelFiles, err error) error {
	var own *infer.Error
	if errors.As(err, &own) { // of a store
		return err
	}
	_, shown := f.paths()
	return infer.Errorf(infer.Internal, "failed to open directory %s: %s", shown, strerror(err))
}

// noAgent refuses a model with a repository agent: agents cannot be run, and without them the model
// may be unfit to be served.
func (r *Roots) noAgent(name string) error {
	directory := r.options.AgentDirectory
	if directory == "" {
		directory = "/opt/tritonserver/repoagents"
	}
	return infer.Errorf(infer.InvalidArg, "unable to find 'libtritonrepoagent_%s.so' for repo agent '%s', searched: %s", name, name, directory)
}

// Check returns why the model cannot be loaded, as far as that is known before its code runs: there
// is no version to load, or its instances cannot be placed. The error is an *infer.Error for
// clients.
func (d *Description) Check() error {
	if len(d.Versions) == 0 {
		return infer.Errorf(infer.InvalidArg, "at least one version must be available under the version policy of model '%s'", d.Name)
	}
	return d.repository.rules().CheckGroups(d.Config)
}

// Completes reports whether the model is asked to complete its configuration.
func (d *Description) Completes() bool { return !d.repository.options.DisableAutoComplete }

// Finish completes the configuration of one version with the model's answer to auto-complete (JSON
// in the form of config.JSON, or nil), validates it and reads the labels by the names of the
// outputs. The error is an *infer.Error for clients. An unusable answer is an error, where Triton
// silently ignores it. The labels are charged to charge, which may be nil.
func (d *Description) Finish(charge *budget.Charge, answer []byte) (c *kserve.ModelConfig, json []byte, labels map[string][]string, err error) {
	if c, err = d.repository.rules().Complete(d.Config, answer); err != nil {
		return nil, nil, nil, err
	}
	if labels, err = d.readLabels(charge, c); err != nil {
		return nil, nil, nil, err
	}
	return c, config.JSON(c), labels, nil
}

// IsEnsemble reports whether the model is an ensemble.
func (d *Description) IsEnsemble() bool { return len(d.Config.GetEnsembleScheduling().GetStep()) > 0 }

// Composing returns the models that an ensemble calls, each with the versions that its steps
// require, ascending and without duplicates; infer.LatestVersion means any. A name without a
// namespace may refer to a model in any. It is empty for other models.
//
// bound: the config
func (d *Description) Composing() map[Identity][]int64 {
	steps := d.Config.GetEnsembleScheduling().GetStep()
	composing := make(map[Identity][]int64, len(steps))
	for _, step := range steps {
		id := Identity{Namespace: step.GetModelNamespace(), Name: step.GetModelName()}
		version := step.GetModelVersion()
		if version < 0 {
			version = infer.LatestVersion
		}
		if at, known := slices.BinarySearch(composing[id], version); !known {
			composing[id] = slices.Insert(composing[id], at, version)
		}
	}
	return composing
}
