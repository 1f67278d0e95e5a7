package models

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// sampleOf is one sample with inputs of name, type, dims and what gives its data.
func sampleOf(rest string, inputs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model_warmup [ { name: \"s\" %s ", rest)
	for i := 0; i+3 < len(inputs); i += 4 {
		fmt.Fprintf(&b, "inputs { key: %q value { data_type: TYPE_%s dims: [ %s ] %s } } ", inputs[i], inputs[i+1], inputs[i+2], inputs[i+3])
	}
	return b.String() + "} ]\n"
}

// patientBackend opens models whose beginning and end take a second at most.
type patientBackend struct{ *growing }

type patientModel struct{ *growingModel }

func (b patientBackend) Open(env backend.Env) (backend.Model, error) {
	m, err := b.growing.Open(env)
	return patientModel{m.(*growingModel)}, err
}

func (patientModel) InitializeTimeout() time.Duration { return time.Second }
func (patientModel) UnloadTimeout() time.Duration     { return time.Second }

// TestEndlessWarmupKeepsNoLoad: a sample that is to be executed billions of times does not
// keep a load for ever.
func TestEndlessWarmupKeepsNoLoad(t *testing.T) {
	root := writeModels(t, map[string][]int64{"m": {1}})
	endless := fakeConfig + `instance_group [ { count: 1 kind: KIND_CPU } ]` + sampleOf("batch_size: 1 count: 4294967295", "IN", "INT32", "1", "zero_data: true")
	rewrite(t, filepath.Join(root, "m", "config.pbtxt"), endless)
	r := newTestRegistry(t, root, patientBackend{&growing{answer: make(map[string]error)}}, explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: the warm-up of model 'm' did not end within 1s;\n")
}

// A version whose warm-up fails does not serve, and nothing of it is left.
func TestWarmupFailsTheLoad(t *testing.T) {
	root := writeModels(t, map[string][]int64{"m": {1}})
	config := fakeConfig + sampleOf("batch_size: 1", "IN", "INT32", "1", "zero_data: true")
	if err := os.WriteFile(filepath.Join(root, "m", "config.pbtxt"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newFakeBackend()
	r := newTestRegistry(t, root, b, explicit())
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
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "+
		"Internal: failed to open text file for read "+root+"/m/warmup/none: No such file or directory;\n")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened["m:1"] != 2 || b.closed["m:1"] == 0 {
		t.Errorf("opened %d times, closed %d times", b.opened["m:1"], b.closed["m:1"])
	}
}
