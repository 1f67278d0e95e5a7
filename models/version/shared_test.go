package version_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// patience is the time that a test waits for an event.
const patience = time.Minute

// shelf is a Registry of the versions that a test has loaded, one per model.
type shelf struct {
	t         *testing.T
	roots     *repository.Roots
	loader    *version.Loader
	settings  version.Settings
	versions  map[repository.Identity]*version.Version
	described map[string]*repository.Description
	ending    panics.WaitGroup
	lifetime  context.Context
}

// load loads version 1 of a model.
func (s *shelf) load(name string) (*version.Version, error) {
	s.t.Helper()
	v, err := s.loader.Load(s.t.Context(), version.Source{Description: s.read(name), Version: 1})
	if err == nil {
		s.versions[repository.Identity{Name: name}] = v
	}
	return v, err
}

// read reads a model. Each name is read once.
func (s *shelf) read(name string) *repository.Description {
	s.t.Helper()
	if s.described[name] == nil {
		d, _, err := s.roots.Read(repository.Identity{Name: name}, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		s.described[name] = d
	}
	return s.described[name]
}

// mustLoad loads version 1 of a model without an error.
func (s *shelf) mustLoad(name string) *version.Version {
	s.t.Helper()
	v, err := s.load(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
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
func (s *shelf) Latest(step, _ repository.Identity) (*version.Version, error) {
	if v := s.versions[step]; v != nil {
		return v, nil
	}
	return nil, infer.Errorf(infer.NotFound, "no model %s", step)
}

// Hold implements Registry.
func (s *shelf) Hold(model repository.Identity, _ int64) (version.Held, error) {
	v, err := s.Latest(model, model)
	if err != nil {
		return version.Held{}, err
	}
	if h, can := v.Hold(); can {
		return h, nil
	}
	return version.Held{}, version.ErrReplaced
}

// Lifetime implements Registry.
func (s *shelf) Lifetime() context.Context { return s.lifetime }

// Ending implements Registry.
func (s *shelf) Ending() *panics.WaitGroup { return &s.ending }

// newShelf opens a repository whose models run on the backend "fake".
func newShelf(t *testing.T, root string, b backend.Backend, change func(*version.Settings)) *shelf {
	t.Helper()
	roots, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	settings := version.Settings{Backends: map[string]backend.Backend{"fake": b}, Metrics: metrics.New(metrics.Config{}), Log: zerolog.Nop()}
	if change != nil {
		change(&settings)
	}
	s := &shelf{t: t, roots: roots, settings: settings, lifetime: context.Background(), versions: make(map[repository.Identity]*version.Version), described: make(map[string]*repository.Description)}
	s.loader = version.NewLoader(settings, s)
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

// echoes is a backend whose models have one instance, which returns its first input as output OUT.
type echoes struct {
	hold chan struct{}             // if set, executions wait until it is closed
	can  backend.ModelCapabilities // the models'

	mu      sync.Mutex
	env     backend.Env // of the last Open
	batches []int       // the number of requests in each executed batch
	// The inputs and places of the last request that was executed.
	inputs []infer.Tensor
	places []infer.Place
}

func (b *echoes) Open(env backend.Env) (backend.Model, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.env = env
	return echo{b}, nil
}

// see records a batch.
func (b *echoes) see(batch *backend.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches = append(b.batches, len(batch.Tasks))
	last := batch.Tasks[len(batch.Tasks)-1].Request
	b.inputs, b.places = slices.Clone(last.Inputs), slices.Clone(last.Places)
}

type echo struct{ *echoes }

func (e echo) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (e echo) Start(_ context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	events.Available(echoInstance{e})
	return nil
}

func (e echo) Instances() []backend.Instance { return []backend.Instance{echoInstance{e}} }

func (e echo) Close(context.Context) error { return nil }

func (e echo) Name() string { return "echo" }

func (e echo) Ready(context.Context) error { return nil }

func (e echo) Capabilities() backend.ModelCapabilities { return e.can }

type echoInstance struct{ echo }

func (echoInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (e echoInstance) Execute(b *backend.Batch) {
	go func() {
		e.see(b)
		if e.hold != nil {
			<-e.hold
		}
		for _, task := range b.Tasks {
			out := task.Request.Inputs[0]
			out.Name = "OUT"
			if out.Foreign() != nil {
				out.Memory, out.Data = nil, make([]byte, 4)
			}
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

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if e := infer.AsError(err); e == nil || e.Code != code || e.Message != text {
		t.Errorf("got  %v\nwant %v %s", err, code, text)
	}
}
