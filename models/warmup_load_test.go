package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// sampleOf returns a warm-up with one sample. Each input is a name, type, dims and data source.
func sampleOf(rest string, inputs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model_warmup [ { name: \"s\" %s ", rest)
	for i := 0; i+3 < len(inputs); i += 4 {
		fmt.Fprintf(&b, "inputs { key: %q value { data_type: TYPE_%s dims: [ %s ] %s } } ", inputs[i], inputs[i+1], inputs[i+2], inputs[i+3])
	}
	return b.String() + "} ]\n"
}

// patientBackend opens models whose start and end may take one second.
type patientBackend struct{ *growing }

type patientModel struct{ *growingModel }

func (b patientBackend) Open(env backend.Env) (backend.Model, error) {
	m, err := b.growing.Open(env)
	return patientModel{m.(*growingModel)}, err
}

func (m patientModel) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{Exchanger: m, InitializeTimeout: time.Second, UnloadTimeout: time.Second}
}

// longWarmup writes a model whose warm-up takes half an hour.
func longWarmup(t *testing.T) (root string, b *growing) {
	t.Helper()
	root = models.WriteModels(t, map[string][]int64{"m": {1}})
	models.Rewrite(t, filepath.Join(root, "m", "config.pbtxt"), models.FakeConfig+`instance_group [ { count: 1 kind: KIND_CPU } ]`+
		sampleOf("batch_size: 1 count: 1000000", "IN", "INT32", "1", "zero_data: true"))
	return root, &growing{answer: make(map[string]error), returning: func() { time.Sleep(2 * time.Millisecond) }}
}

// TestEndlessWarmupKeepsNoLoad checks that a load fails when its warm-up exceeds the model's
// initialize timeout.
func TestEndlessWarmupKeepsNoLoad(t *testing.T) {
	root, b := longWarmup(t)
	r := models.NewTestRegistry(t, root, patientBackend{b}, models.Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	models.WantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: the warm-up of model 'm' did not end within 1s;\n")
}

// TestWarmupEndsForWhatComesNext checks that an unload or another load cancels a load that is still
// warming up after the unload timeout, and that a shutdown cancels it at once.
func TestWarmupEndsForWhatComesNext(t *testing.T) {
	for name, next := range map[string]func(r *models.Registry) error{
		"unload": func(r *models.Registry) error { return r.Unload(t.Context(), "m", false) },
		"load": func(r *models.Registry) error {
			return r.Load(t.Context(), "m", models.ConfigWith(t, "", groups("a1")), nil)
		},
		"shutdown": func(r *models.Registry) error { return r.Shutdown(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			root, b := longWarmup(t)
			r := models.NewTestRegistry(t, root, b, func(c *models.RegistryConfig) {
				models.Explicit()(c)
				if c.UnloadTimeout = 50 * time.Millisecond; name == "shutdown" {
					c.UnloadTimeout = time.Hour
				}
			})
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			loaded := make(chan error, 1)
			go func() { loaded <- r.Load(t.Context(), "m", "", nil) }()
			testkit.Eventually(t, models.Patience, func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.opened > 0
			})
			began := time.Now()
			if err := next(r); err != nil {
				t.Error(err)
			}
			if err := <-loaded; err == nil {
				t.Error("the load has succeeded")
			}
			if took := time.Since(began); took > models.Patience/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestWarmupFailsTheLoad checks the statistics of a warm-up, and that a version whose warm-up fails
// does not serve and is closed.
func TestWarmupFailsTheLoad(t *testing.T) {
	root := models.WriteModels(t, map[string][]int64{"m": {1}})
	config := models.FakeConfig + sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true")
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	b := models.NewFakeBackend()
	r := models.NewTestRegistry(t, root, b, models.Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	all, err := r.Statistics("m", infer.LatestVersion)
	if err != nil || all[0].InferenceCount != 1 || all[0].ExecutionCount != 1 || all[0].InferenceStats.Success.Count != 1 {
		t.Errorf("after the warm-up the statistics are %v, %v", all, err)
	}
	config = strings.Replace(config, "zero_data: true", `input_data_file: "none"`, 1)
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	models.WantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: failed to open text file for read m/warmup/none: No such file or directory;\n")
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Opened["m:1"] != 2 || b.Closed["m:1"] == 0 {
		t.Errorf("opened %d times, closed %d times", b.Opened["m:1"], b.Closed["m:1"])
	}
}
