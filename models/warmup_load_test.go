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
	root = writeModels(t, map[string][]int64{"m": {1}})
	rewrite(t, filepath.Join(root, "m", "config.pbtxt"), fakeConfig+`instance_group [ { count: 1 kind: KIND_CPU } ]`+
		sampleOf("batch_size: 1 count: 1000000", "IN", "INT32", "1", "zero_data: true"))
	return root, &growing{answer: make(map[string]error), returning: func() { time.Sleep(2 * time.Millisecond) }}
}

// TestWarmupTimeoutFailsTheLoad checks that a load fails when its warm-up exceeds the model's
// initialize timeout.
func TestWarmupTimeoutFailsTheLoad(t *testing.T) {
	root, b := longWarmup(t)
	r := startRegistry(t, root, patientBackend{b}, explicit())
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: the warm-up of model 'm' did not end within 1s;\n")
}

// TestLaterChangesCancelAWarmup checks that an unload or another load cancels a load that is still
// warming up after the unload timeout, and that a shutdown cancels it at once.
func TestLaterChangesCancelAWarmup(t *testing.T) {
	for name, next := range map[string]func(r *models.Registry) error{
		"unload": func(r *models.Registry) error { return r.Unload(t.Context(), "m", false) },
		"load": func(r *models.Registry) error {
			return r.Load(t.Context(), "m", configWith(t, "", groups("a1")), nil)
		},
		"shutdown": func(r *models.Registry) error { return r.Shutdown(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			root, b := longWarmup(t)
			r := startRegistry(t, root, b, func(c *models.RegistryConfig) {
				explicit()(c)
				if c.UnloadTimeout = 50 * time.Millisecond; name == "shutdown" {
					c.UnloadTimeout = time.Hour
				}
			})
			loaded := make(chan error, 1)
			go func() { loaded <- r.Load(t.Context(), "m", "", nil) }()
			testkit.Eventually(t, patience, func() bool {
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
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestWarmupFailsTheLoad checks the statistics of a warm-up, and that a version whose warm-up fails
// does not serve and is closed.
func TestWarmupFailsTheLoad(t *testing.T) {
	root := writeModels(t, map[string][]int64{"m": {1}})
	config := fakeConfig + sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true")
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newFakeBackend()
	r := startRegistry(t, root, b, explicit())
	mustLoad(t, r, "m")
	all, err := r.Statistics("m", infer.LatestVersion)
	if err != nil || all[0].InferenceCount != 1 || all[0].ExecutionCount != 1 || all[0].InferenceStats.Success.Count != 1 {
		t.Errorf("after the warm-up the statistics are %v, %v", all, err)
	}
	config = strings.Replace(config, "zero_data: true", `input_data_file: "none"`, 1)
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: failed to open text file for read m/warmup/none: No such file or directory;\n")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened["m:1"] != 2 || b.closed["m:1"] == 0 {
		t.Errorf("opened %d times, closed %d times", b.opened["m:1"], b.closed["m:1"])
	}
}
