package models

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
)

// TestPollWaitsForALoadThatReadsAgain checks an invariant: while a load reads its model again, a
// poll does not compare the model, because it cannot tell yet whether it has changed since.
func TestPollWaitsForALoadThatReadsAgain(t *testing.T) {
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/config.pbtxt": "backend: \"fake\"", "m/1/weights": "old"})
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	p, id, load := newPoller(NewRegistry(RegistryConfig{Repository: opened})), repository.Identity{Name: "m"}, newWork()
	source, err := p.source(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	load.sources, load.files[id], p.works[id] = map[repository.Identity]*catalog.Source{id: source}, &source.Files, load
	testkit.WriteFiles(t, root, map[string]string{"m/1/weights": "newer"})
	load.reread(id)(nil)
	if found, err := p.examine(id); found != nil || err != nil {
		t.Errorf("while the load reads the model: got %v, %v, want nothing", found, err)
	}
	load.reread(id)(&source.Files)
	if found, err := p.examine(id); found == nil || err != nil {
		t.Errorf("after the load has read the old model: got %v, %v, want the new one", found, err)
	}
}
