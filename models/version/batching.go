package version

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// Parameters of a model that control which requests share a batch.
const (
	// strategyParameter names a strategy of this server.
	strategyParameter = "BATCH_STRATEGY"
	// libraryParameter is the path of a library of Triton's.
	libraryParameter = "TRITON_BATCH_STRATEGY_PATH"
	// libraryFile is such a library at the path where Triton finds it.
	libraryFile = "batchstrategy.so"
)

// NewStrategy makes the batching strategy of one version of a model from its
// final config. An error fails the load; clients see it if it is an *infer.Error.
type NewStrategy func(config *kserve.ModelConfig) (batching.Strategy, error)

// strategies are the strategies that every server has.
var strategies = map[string]NewStrategy{"volume": batching.Volume, "single": batching.Single}

// newBatching returns the rules that join a version's requests to batches, nil if each is executed
// alone.
func (l *Loader) newBatching(v *Version, d *repository.Description) (*batching.Rules, error) {
	strategy, err := l.newStrategy(v, d)
	if err != nil {
		return nil, err
	}
	b := batching.NewRules(v.info.Config)
	if b != nil {
		if v.stacking != nil {
			strategy = v.stacking.Strategy(strategy)
		}
		b.Strategy, b.StartWith = strategy, l.settings.DelayRequests
	}
	return b, nil
}

// newStrategy returns the custom batching strategy of a version, or nil. Without dynamic_batching
// it is created for its errors, but not used.
func (l *Loader) newStrategy(v *Version, d *repository.Description) (batching.Strategy, error) {
	config := v.info.Config
	if err := refuseLibrary(config, d, v.info.Version); err != nil {
		return nil, err
	}
	name := config.GetParameters()[strategyParameter].GetStringValue()
	if name == "" {
		if choose := v.can.Strategy; choose != nil {
			return choose(), nil
		}
		return nil, nil
	}
	if config.GetSequenceBatching() != nil {
		return nil, invalid("model '%s' has %s '%s', which sequence_batching does not use", config.Name, strategyParameter, name)
	}
	make, found := l.settings.Strategies[name]
	if !found {
		make, found = strategies[name]
	}
	if !found {
		known := slices.Collect(maps.Keys(strategies))
		known = slices.AppendSeq(known, maps.Keys(l.settings.Strategies))
		slices.Sort(known)
		names := strings.Join(slices.Compact(known), ", ") // bound: the strategies of the server
		return nil, invalid("model '%s' has %s '%s', this server knows: %s", config.Name, strategyParameter, name, names)
	}
	l.settings.Log.Info().Msgf("Using custom batching strategy '%s' for model %s", name, config.Name)
	return make(config)
}

// refuseLibrary refuses a model with a batching library of Triton's: C++ code that this server
// cannot run. Triton's own refusals come first.
func refuseLibrary(config *kserve.ModelConfig, d *repository.Description, version int64) error {
	f, err := d.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	path, named := config.GetParameters()[libraryParameter]
	if !named {
		if config.GetDynamicBatching() == nil {
			return nil
		}
		for _, file := range []string{filepath.Join(strconv.FormatInt(version, 10), libraryFile), libraryFile} {
			if f.Exists(file) {
				return noLibrary(config, file)
			}
		}
		return nil
	}
	if config.GetSequenceBatching() != nil {
		return invalid("%s cannot be specified with sequence batcher, using default batching strategy", libraryParameter)
	}
	inner := path.GetStringValue()
	if filepath.IsAbs(inner) {
		if inner, err = filepath.Rel(d.Directory, inner); err != nil {
			inner = ".."
		}
	}
	switch {
	case !filepath.IsLocal(inner):
		return invalid("Batching library path escapes model repository.")
	case !f.Exists(inner):
		return infer.Errorf(infer.NotFound, "Batching library path not found: %s", path.GetStringValue())
	}
	return noLibrary(config, path.GetStringValue())
}

func noLibrary(config *kserve.ModelConfig, path string) error {
	return infer.Errorf(infer.Unsupported,
		"model '%s' has the batching library %s, which this server cannot load; the parameter %s names a strategy that it has itself",
		config.Name, path, strategyParameter)
}
