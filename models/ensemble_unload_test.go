package models

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestEnsembleFailsWhileItsLastLoadEnds checks that a failed load of an ensemble does not disturb a
// request in flight in the version that is being unloaded.
func TestEnsembleFailsWhileItsLastLoadEnds(t *testing.T) {
	b := &echoBackend{hold: make(chan struct{})}
	r := ensembleRegistry(t, b)
	mustLoad(t, r, "chain")
	answered := make(chan error, 1)
	go func() {
		_, err := askChain(t.Context(), r)
		answered <- err
	}()
	testkit.Eventually(t, Patience, func() bool { return len(r.InFlight()) == 2 }) // the ensemble and one step
	if err := r.Unload(t.Context(), "chain", false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.config.Repository.Namespaces()[0], "chain", "own")); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "chain", "", nil); err == nil {
		t.Error("an ensemble without its labels was loaded")
	}
	close(b.hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	r.ending.Wait()
}
