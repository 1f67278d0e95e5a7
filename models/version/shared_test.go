package version

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/panics"
)

// patience is the time that a test waits for an event.
const patience = time.Minute

// shelf is a Registry of the versions that a test has loaded, one per model.
type shelf struct {
	t        *testing.T
	roots    *repository.Roots
	loader   *Loader
	versions map[repository.Identity]*Version
	ending   panics.WaitGroup
}

// load loads version 1 of a model.
func (s *shelf) load(name string) (*Version, error) {
	s.t.Helper()
	id := repository.Identity{Name: name}
	d, _, err := s.roots.Read(id, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	v, err := s.loader.Load(s.t.Context(), Source{Description: d, Version: 1})
	if err == nil {
		s.versions[id] = v
	}
	return v, err
}

// close closes the loaded version of a model.
func (s *shelf) close(name string) {
	s.t.Helper()
	id := repository.Identity{Name: name}
	if err := s.versions[id].Close(); err != nil {
		s.t.Error(err)
	}
	delete(s.versions, id)
}

// Latest implements Registry.
func (s *shelf) Latest(step, _ repository.Identity) (*Version, error) {
	if v := s.versions[step]; v != nil {
		return v, nil
	}
	return nil, infer.Errorf(infer.NotFound, "no model %s", step)
}

// Hold implements Registry.
func (s *shelf) Hold(model repository.Identity, _ int64) (Held, error) {
	v, err := s.Latest(model, model)
	if err != nil {
		return Held{}, err
	}
	if h, can := v.Hold(); can {
		return h, nil
	}
	return Held{}, ErrReplaced
}

// Lifetime implements Registry.
func (s *shelf) Lifetime() context.Context { return context.Background() }

// Ending implements Registry.
func (s *shelf) Ending() *panics.WaitGroup { return &s.ending }

// newShelf opens a repository whose models run on the backend "fake".
func newShelf(t *testing.T, root string, b backend.Backend, change func(*Settings)) *shelf {
	t.Helper()
	roots, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{Backends: map[string]backend.Backend{"fake": b}, Metrics: metrics.New(metrics.Config{}), Log: zerolog.Nop()}
	if change != nil {
		change(&settings)
	}
	s := &shelf{t: t, roots: roots, versions: make(map[repository.Identity]*Version)}
	s.loader = NewLoader(settings, s)
	t.Cleanup(func() {
		for _, v := range s.versions {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
		s.ending.Wait()
		roots.Close()
	})
	return s
}

// echoes is a backend whose models have one instance, which returns input IN as output OUT. If hold
// is set, executions wait until it is closed.
type echoes struct{ hold chan struct{} }

func (b echoes) Open(backend.Env) (backend.Model, error) { return &echo{hold: b.hold}, nil }

type echo struct{ hold chan struct{} }

func (e *echo) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (e *echo) Start(_ context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	events.Available(echoInstance{e})
	return nil
}

func (e *echo) Instances() []backend.Instance { return []backend.Instance{echoInstance{e}} }

func (e *echo) Close(context.Context) error { return nil }

func (e *echo) Name() string { return "echo" }

func (e *echo) Ready(context.Context) error { return nil }

func (e *echo) Capabilities() backend.ModelCapabilities { return backend.ModelCapabilities{} }

type echoInstance struct{ *echo }

func (echoInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (e echoInstance) Execute(b *backend.Batch) {
	go func() {
		if e.hold != nil {
			<-e.hold
		}
		for _, task := range b.Tasks {
			out := task.Request.Inputs[0]
			out.Name = "OUT"
			task.Send(&infer.Response{Final: true, Outputs: []infer.Tensor{out}})
		}
		b.Done(b, backend.Report{Start: 1, ComputeStart: 2, ComputeEnd: 3, End: 4, Executed: true})
	}()
}

const echoConfig = `backend: "fake"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`

// writeModel writes a repository with version 1 of model "m" and appends more to its config.
func writeModel(t *testing.T, more string) (root string) {
	t.Helper()
	root = t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{"m/config.pbtxt": echoConfig + more, "m/1/keep": ""})
	return root
}
