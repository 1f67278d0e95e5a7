package process_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// slowToStart is a model whose second instance never ends by itself and whose third never starts.
const slowToStart = `import time

class TritonPythonModel:
    def initialize(self, args):
        self.number = args["model_instance_name"][-1]
        if self.number == "2":
            time.sleep(3600)

    def execute(self, requests):
        return []

    def finalize(self):
        if self.number == "1":
            time.sleep(3600)
`

// TestCloseWhileInstancesStart checks that Close with an ended context kills both running and
// starting instances.
func TestCloseWhileInstancesStart(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.FinalizeTimeout = time.Hour })
	m, err := r.open(r.writeModel("slow", slowToStart), modelConfig("slow", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	config := modelConfig("slow", 3, infer.Uint8)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	grown := make(chan error, 1)
	go func() {
		_, _, err := m.model.Capabilities().Exchanger.Grow(t.Context(), config, text)
		grown <- err
	}()
	testkit.Eventually(t, patience, func() bool {
		ups, _ := m.events.counted()
		return ups == 2
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- m.model.Close(ctx) }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("Close does not say that stubs were killed")
		}
	case <-time.After(patience):
		t.Fatal("Close waits for an instance that was just started")
	}
	if err := <-grown; err == nil {
		t.Error("Grow says that all have started")
	}
}

// TestDoomedWhileItStarts checks that a stub that becomes ready after its instance was killed for
// good does not stay.
func TestDoomedWhileItStarts(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.instance().Doom()
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.lost) >= 2 })
}

// busyWhileOthersFail is a model whose first instance executes forever. Its second instance fails
// once the first is executing.
const busyWhileOthersFail = `import os
import time

class TritonPythonModel:
    def initialize(self, args):
        self.file = os.path.join(args["model_repository"], "busy")
        if args["model_instance_name"][-1] == "1":
            while not os.path.exists(self.file):
                time.sleep(0.01)
            raise RuntimeError("not this one")

    def execute(self, requests):
        open(self.file, "w").close()
        time.sleep(3600)
`

// warmer executes a batch on each instance that becomes available.
type warmer struct {
	fakeEvents
	batch func() *backend.Batch
}

func (w *warmer) Available(in backend.Instance) {
	w.fakeEvents.Available(in)
	in.Execute(w.batch())
}

// TestStartThatFailsEndsWithItsContext checks that Start returns once its context ends, although
// one instance failed to start and another warms up forever.
func TestStartThatFailsEndsWithItsContext(t *testing.T) {
	r := newFixture(t, nil)
	dir, config := r.writeModel("busy", busyWhileOthersFail), modelConfig("busy", 2, infer.Uint8)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	model, err := r.backend.Open(backend.Env{Name: "busy", Version: 1, Directory: dir, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	events := &warmer{batch: func() *backend.Batch {
		task := &backend.Task{Context: t.Context(), Request: r.small(), Send: func(*infer.Response) {}}
		return &backend.Batch{Tasks: []*backend.Task{task}, Done: func(*backend.Batch, backend.Report) {}}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- model.Start(ctx, config, text, events) }()
	testkit.Eventually(t, patience, func() bool {
		_, err := os.Stat(filepath.Join(dir, "busy"))
		return err == nil
	})
	cancel()
	select {
	case err := <-started:
		if err == nil {
			t.Error("the model has started")
		}
	case <-time.After(patience):
		for _, in := range model.Instances() {
			in.(*process.Instance).Doom()
		}
		t.Errorf("Start goes on without its context, and returns %v", <-started)
	}
	if err := model.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
