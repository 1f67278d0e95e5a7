package models

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// pairs is an embedder's strategy: two requests share a batch.
type pairs struct{}

func (pairs) Begin() func(*infer.Request) bool {
	n := 0
	return func(*infer.Request) bool {
		n++
		return n <= 2
	}
}

// strategist is a backend whose models bring a strategy.
type strategist struct{ *fakeBackend }

func (b strategist) Open(env backend.Env) (backend.Model, error) {
	m, err := b.fakeBackend.Open(env)
	return strategicModel{m}, err
}

type strategicModel struct{ backend.Model }

func (strategicModel) Strategy() backend.Strategy { return pairs{} }

// TestBatchingStrategiesAreTakenOrRefused is a table of models that ask for a strategy of their
// own, and of how those are refused that cannot have it.
func TestBatchingStrategiesAreTakenOrRefused(t *testing.T) {
	const (
		dynamic  = "max_batch_size: 8 dynamic_batching { } "
		sequence = "max_batch_size: 8 sequence_batching { } "
		library  = "parameters { key: \"TRITON_BATCH_STRATEGY_PATH\" value { string_value: \"WHERE\" } } "
	)
	named := func(name string) string {
		return "parameters { key: \"BATCH_STRATEGY\" value { string_value: \"" + name + "\" } } "
	}
	limit := func(n string) string {
		return "parameters { key: \"MAX_BATCH_VOLUME_BYTES\" value { string_value: \"" + n + "\" } } "
	}
	at := func(path string) string { return strings.Replace(library, "WHERE", path, 1) }
	const noLibrary = ", which this server cannot load; the parameter BATCH_STRATEGY names a strategy that it has itself"
	for _, c := range []struct {
		name, config string
		file         string // that lies in the model's directory, too
		code         infer.Code
		want         string // of the refusal; "" if the model is loaded
	}{
		{name: "none", config: dynamic},
		{name: "single", config: dynamic + named("single")},
		{name: "volume", config: dynamic + named("volume") + limit("96")},
		{name: "an embedder's", config: dynamic + named("pairs")},
		{name: "unused", config: "max_batch_size: 8 " + named("single")},
		{name: "unknown", config: dynamic + named("triples"), code: infer.InvalidArg,
			want: "model 'm' has BATCH_STRATEGY 'triples', this server knows: fails, pairs, single, volume"},
		{name: "its own error", config: dynamic + named("fails"), code: infer.Unavailable, want: "not today"},
		{name: "volume without a limit", config: dynamic + named("volume"), code: infer.NotFound,
			want: "Unable to find MAX_BATCH_VOLUME_BYTES parameter in model config"},
		{name: "volume of a word", config: dynamic + named("volume") + limit("many"), code: infer.InvalidArg, want: "failed to convert 'many' to unsigned int64"},
		{name: "with sequences", config: sequence + named("single"), code: infer.InvalidArg,
			want: "model 'm' has BATCH_STRATEGY 'single', which sequence_batching has no use for"},
		{name: "a library with sequences", config: sequence + at("1/lib.so"), code: infer.InvalidArg,
			want: "TRITON_BATCH_STRATEGY_PATH cannot be specified with sequence batcher, using default batching strategy"},
		{name: "a library that is not there", config: dynamic + at("1/lib.so"), code: infer.NotFound, want: "Batching library path not found: 1/lib.so"},
		{name: "a library outside", config: dynamic + at("../other/lib.so"), code: infer.InvalidArg, want: "Batching library path escapes model repository."},
		{name: "a library somewhere else", config: dynamic + at("/usr/lib/lib.so"), code: infer.InvalidArg, want: "Batching library path escapes model repository."},
		{name: "a library", config: dynamic + at("lib.so"), file: "lib.so", code: infer.Unsupported,
			want: "model 'm' has the batching library lib.so" + noLibrary},
		{name: "a library by its whole path", config: dynamic + at("ROOT/m/1/lib.so"), file: "1/lib.so", code: infer.Unsupported,
			want: "model 'm' has the batching library ROOT/m/1/lib.so" + noLibrary},
		{name: "a library that is found", config: dynamic, file: "1/batchstrategy.so", code: infer.Unsupported,
			want: "model 'm' has the batching library ROOT/m/1/batchstrategy.so" + noLibrary},
		{name: "one that is found and not used", config: "max_batch_size: 8 ", file: "batchstrategy.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := writeModels(t, map[string][]int64{"m": {1}})
			config := fakeConfig + strings.ReplaceAll(c.config, "ROOT", root)
			if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(root, "m", c.file), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := newTestRegistry(t, root, newFakeBackend(), func(c *RegistryConfig) {
				c.Explicit, c.Log = true, zerolog.Nop()
				c.Strategies = map[string]NewStrategy{
					"pairs": func(*kserve.ModelConfig) (batching.Strategy, error) { return pairs{}, nil },
					"fails": func(*kserve.ModelConfig) (batching.Strategy, error) {
						return nil, infer.Errorf(infer.Unavailable, "not today")
					},
				}
			})
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := r.Load(t.Context(), "m", "", nil)
			if c.want == "" {
				if err != nil {
					t.Fatalf("load: %v", err)
				}
				return
			}
			status := infer.Error{Code: c.code, Message: strings.ReplaceAll(c.want, "ROOT", root)}
			want := "load failed for model 'm': version 1 is at UNAVAILABLE state: " + status.Status() + ";\n"
			var e *infer.Error
			if !errors.As(err, &e) || e.Message != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// TestStrategyOfAModel: a backend's model supplies its strategy, unless the config
// names another.
func TestStrategyOfAModel(t *testing.T) {
	for more, want := range map[string]batching.Strategy{
		"": pairs{},
		"parameters { key: \"BATCH_STRATEGY\" value { string_value: \"none\" } } ": nil,
	} {
		root := writeModels(t, map[string][]int64{"m": {1}})
		config := fakeConfig + "max_batch_size: 8 dynamic_batching { } " + more
		if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		r := newTestRegistry(t, root, strategist{newFakeBackend()}, func(c *RegistryConfig) {
			c.Strategies = map[string]NewStrategy{"none": func(*kserve.ModelConfig) (batching.Strategy, error) { return nil, nil }}
		})
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, err := r.lookup("m", 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.source(repository.Identity{Name: "m"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		batching, err := r.loader.newBatching(v, s.Description)
		if err != nil || batching.Strategy != want {
			t.Errorf("with %q: got strategy %v and error %v, want %v", more, batching.Strategy, err, want)
		}
	}
}
