package version_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// pairs is a custom strategy: two requests share a batch.
type pairs struct{}

func (pairs) Begin() func(*infer.Request) bool {
	n := 0
	return func(*infer.Request) bool {
		n++
		return n <= 2
	}
}

// TestBatchingStrategiesAreTakenOrRefused loads models whose config names a batching strategy, and
// checks the errors if the strategy is rejected.
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
		file         string // an additional file in the model's directory
		code         infer.Code
		want         string // the error; "" if the model is loaded
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
			want: "model 'm' has BATCH_STRATEGY 'single', which sequence_batching does not use"},
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
			want: "model 'm' has the batching library 1/batchstrategy.so" + noLibrary},
		{name: "one that is found and not used", config: "max_batch_size: 8 ", file: "batchstrategy.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := writeModel(t, "")
			testkit.WriteFiles(t, root, map[string]string{"m/config.pbtxt": echoConfig + strings.ReplaceAll(c.config, "ROOT", root)})
			if c.file != "" {
				testkit.WriteFiles(t, root, map[string]string{filepath.Join("m", c.file): ""})
			}
			_, err := newShelf(t, root, &echoes{}, func(s *version.Settings) {
				s.Strategies = map[string]version.NewStrategy{
					"pairs": func(*kserve.ModelConfig) (batching.Strategy, error) { return pairs{}, nil },
					"fails": func(*kserve.ModelConfig) (batching.Strategy, error) {
						return nil, infer.Errorf(infer.Unavailable, "not today")
					},
				}
			}).load("m")
			if c.want == "" {
				if err != nil {
					t.Fatalf("load: %v", err)
				}
				return
			}
			wantError(t, err, c.code, strings.ReplaceAll(c.want, "ROOT", root))
		})
	}
}

// TestStrategyOfAModel checks that a backend's model provides the strategy, unless the config names
// another one.
func TestStrategyOfAModel(t *testing.T) {
	for more, want := range map[string][]int{
		"": {2, 2},
		"parameters { key: \"BATCH_STRATEGY\" value { string_value: \"none\" } } ": {4},
	} {
		b := &echoes{can: backend.ModelCapabilities{Strategy: func() backend.Strategy { return pairs{} }}}
		s := newShelf(t, writeModel(t, "max_batch_size: 8 dynamic_batching { } "+more), b, func(s *version.Settings) {
			s.Strategies = map[string]version.NewStrategy{"none": func(*kserve.ModelConfig) (batching.Strategy, error) { return nil, nil }}
			s.DelayRequests = 4
		})
		v := s.mustLoad("m")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := v.Infer(t.Context(), &infer.Request{Model: "m", Version: 1, Inputs: []infer.Tensor{
					{Name: "IN", DataType: infer.Int32, Shape: []int64{1, 1}, Data: make([]byte, 4)},
				}}, func(*infer.Response) {}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if !slices.Equal(b.batches, want) {
			t.Errorf("with %q: got batches of %v requests, want %v", more, b.batches, want)
		}
	}
}
