package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// gated is a model whose initialize waits for a file, and fails if the file says so. It executes
// until another file exists.
const gated = `
import os, time
import triton_python_backend_utils as pb_utils

HERE = os.path.dirname(os.path.abspath(__file__))

def wait(name):
    path = os.path.join(HERE, name)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path) as f:
        if f.read() == "ends":
            os.write(2, b"a last word\n")
            os._exit(3)

class TritonPythonModel:
    def initialize(self, args):
        wait("initialize")

    def execute(self, requests):
        wait("execute")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

// TestInstancesTellTheirPhases follows the phases of an instance while its load, its execution and
// its restart are each blocked.
func TestInstancesTellTheirPhases(t *testing.T) {
	r := newFixture(t, nil)
	directory := r.writeModel("gated", gated)
	gate := func(name, text string) {
		path := filepath.Join(directory, "1", name)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	var got process.InstanceStatus
	is := func(phase process.Phase) {
		t.Helper()
		testkit.Eventually(t, patience, func() bool {
			list := r.supervisor.Instances()
			if len(list) != 1 {
				return false
			}
			got = list[0]
			return got.Phase == phase
		})
	}
	if list := r.supervisor.Instances(); len(list) != 0 {
		t.Errorf("got %+v before the first load, want none", list)
	}
	type opened struct {
		m   *running
		err error
	}
	load := make(chan opened, 1)
	go func() {
		m, err := r.open(directory, modelConfig("gated", 1, infer.Uint8))
		load <- opened{m, err}
	}()
	is(process.PhaseStarting)
	testkit.Eventually(t, patience, func() bool { is(process.PhaseStarting); return got.PID > 0 && got.Resident > 1<<20 })
	if got.Model != "gated" || got.Version != 1 || got.Name != "gated_0_0" || got.Kind != "CPU" || got.Losses != 0 {
		t.Errorf("got %+v", got)
	}
	gate("initialize", "")
	o := <-load
	if o.err != nil {
		t.Fatal(o.err)
	}
	is(process.PhaseReady)
	first := got.PID
	answer := make(chan struct{})
	go func() {
		defer close(answer)
		o.m.wantGood()
	}()
	is(process.PhaseBusy)
	gate("execute", "")
	<-answer
	is(process.PhaseReady)

	if err := os.Remove(filepath.Join(directory, "1", "initialize")); err != nil {
		t.Fatal(err)
	}
	o.m.kill()
	is(process.PhaseRestarting)
	if l := got.LastLoss; l == nil || l.Cause != process.Exited || !strings.Contains(l.Text, "signal 9") || got.Losses != 1 || got.Restarts != 0 {
		t.Errorf("got %+v with the loss %+v, want one by signal 9", got, l)
	}
	gate("initialize", "")
	is(process.PhaseReady)
	if got.PID == first || got.PID == 0 || got.Restarts != 1 || !got.NextStart.IsZero() {
		t.Errorf("got %+v, want another process than %d, after one restart", got, first)
	}

	gate("initialize", "ends") // from now on, it fails to start
	o.m.kill()
	is(process.PhaseDead)
	if l := got.LastLoss; !strings.Contains(l.Text, "exited with code 3") || !strings.Contains(l.Text, "a last word") || got.NextStart.Before(l.At) && !got.NextStart.IsZero() {
		t.Errorf("got %+v with the loss %+v, want the code, the last line and the next start", got, l)
	}
	gate("initialize", "")
	is(process.PhaseReady)
	if time.Since(got.Since) < 0 || got.Losses < 1+process.HopelessStarts {
		t.Errorf("got %+v, want %d losses at least", got, 1+process.HopelessStarts)
	}
	o.m.close()
	if list := r.supervisor.Instances(); len(list) != 0 {
		t.Errorf("got %+v after the end, want none", list)
	}
}
