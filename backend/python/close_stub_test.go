package python

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// slowToStart is a model whose second instance does not come to an end by itself,
// and whose third never starts.
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

// TestCloseWhileInstancesStart: the time for the end of a model is over while some
// of its new instances are up and others are not.
func TestCloseWhileInstancesStart(t *testing.T) {
	r := newRig(t, func(c *Config) { c.FinalizeTimeout = time.Hour })
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
		_, _, err := m.model.(backend.Updater).Grow(t.Context(), config, text)
		grown <- err
	}()
	testkit.Eventually(t, patience, func() bool {
		ups, _ := m.floor.counted()
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

// TestDoomedWhileItStarts: a stub that becomes ready when its instance has been
// killed for good does not stay.
func TestDoomedWhileItStarts(t *testing.T) {
	r := newRig(t, nil)
	m := r.start("identity", infer.Uint8)
	in := m.instance()
	in.doomed.Store(true) // as if it had no stub just now
	in.kill()
	testkit.Eventually(t, patience, func() bool { return r.counts.of(&r.counts.lost) >= 2 })
}
