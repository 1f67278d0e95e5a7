package platforms

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/body"
)

// Repositories adds and removes repositories while the server runs; models.Registry implements it.
// Errors are *infer.Error.
type Repositories interface {
	// RegisterRepository adds a repository in which the model name has the directory where. It
	// fails with AlreadyExists if the path or the name is in use.
	RegisterRepository(path, where, name string) error
	// UnregisterRepository removes a repository, whose models have been unloaded.
	UnregisterRepository(path string) error
	// AwaitUnloaded waits until no version of a model serves, loads or finishes requests, or until
	// ctx ends.
	AwaitUnloaded(ctx context.Context, name string) error
}

const (
	// targetHeader has the name under which a model is loaded, if it differs from the platform's.
	targetHeader = "X-Amzn-SageMaker-Target-Model"
	// unloadPatience is how long an unload waits for requests in flight.
	unloadPatience = 350 * time.Second
)

// multiModel serves /models: the platform loads, invokes and unloads models, each of which has its
// own repository.
//
//	(unknown) ── load ─▶ registered ── loaded ─▶ in models ── unload ─▶ unloading, then (unknown)
//	                         └── failed ─▶ (unknown)
//
// A repository is registered before its model is loaded, which separates two loads of one path. A
// hash is known once the model serves. No lock is held while a model is loaded or unloaded.
type multiModel struct {
	base         string // of the paths that may be loaded
	core         server.Core
	repositories Repositories
	ends         *rest.Endpoints
	bodies       *body.Gatherer
	log          zerolog.Logger

	// mu guards models, which has the loaded models by hash, the platform's name for them. A hosted
	// does not change.
	mu     sync.Mutex
	models map[string]*hosted // bound: the models that are loaded
}

// hosted is a model that the platform has loaded.
type hosted struct {
	path string // of its repository
}

// parseModelPath splits the path after /models, as Triton's pattern (/)?([^/]+)?(/invoke)? does.
func parseModelPath(below string) (hash string, invoke, ok bool) {
	below = strings.TrimPrefix(below, "/")
	slash := strings.IndexByte(below, '/')
	if slash < 0 {
		return below, false, true
	}
	return below[:slash], true, below[slash:] == "/invoke"
}

func (m *multiModel) serve(w *http1.Reply, r *http1.Request, below string) {
	hash, invoke, ok := parseModelPath(below)
	switch {
	case !ok:
		refuse(w, http.StatusBadRequest)
	case r.Method == http.MethodPost && invoke:
		m.invoke(w, r, hash)
	case r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodDelete:
		refuse(w, http.StatusBadRequest)
	case !m.ends.Allow(w, r, server.GroupModelRepository):
	case r.Method != http.MethodGet && !m.ends.AllowChange(w, r):
	case r.Method == http.MethodPost:
		m.load(w, r)
	case r.Method == http.MethodDelete:
		m.unload(w, r, hash)
	case hash == "":
		m.list(w, r)
	default:
		m.describe(w, hash)
	}
}

func (m *multiModel) find(hash string) *hosted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.models[hash]
}

// target returns the server's name of a model.
func target(r *http1.Request, hash string) string {
	if name, ok := r.Header(targetHeader); ok {
		return name
	}
	return hash
}

// list replies with the models, sorted by hash. A model that is not ready under its hash is an
// empty object.
func (m *multiModel) list(w *http1.Reply, r *http1.Request) {
	m.mu.Lock()
	hashes := make([]string, 0, len(m.models))      // bound: the models that are loaded
	paths := make(map[string]string, len(m.models)) // bound: the models that are loaded
	for hash, h := range m.models {
		hashes, paths[hash] = append(hashes, hash), h.path // bound: the models that are loaded
	}
	m.mu.Unlock()
	slices.Sort(hashes)
	n := len(`{"models":[]}`)
	for _, hash := range hashes {
		n += modelBytes + jsontext.TextBytes(hash) + jsontext.TextBytes(paths[hash])
	}
	sendJSON(w, n, func(b []byte) []byte {
		b = append(b, `{"models":[`...)
		for i, hash := range hashes {
			if i > 0 {
				b = append(b, ',') // bound: modelBytes
			}
			if ready, err := m.core.ModelReady(r.Context(), hash, 1); err != nil || !ready {
				b = append(b, "{}"...)
				continue
			}
			b = appendModel(b, hash, paths[hash])
		}
		return append(b, "]}"...)
	})
}

func (m *multiModel) describe(w *http1.Reply, hash string) {
	h := m.find(hash)
	if h == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	n := modelBytes + jsontext.TextBytes(hash) + jsontext.TextBytes(h.path)
	sendJSON(w, n, func(b []byte) []byte { return appendModel(b, hash, h.path) })
}

// modelBytes bounds the JSON of a model without its texts.
const modelBytes = 64

// appendModel appends the JSON of a model.
//
// bound: modelBytes beside the texts, for which the caller has made room
func appendModel(b []byte, hash, path string) []byte {
	b = jsontext.AppendString(append(b, `{"modelName":`...), hash)
	b = jsontext.AppendString(append(b, `,"modelUrl":`...), path)
	return append(b, '}')
}

// load serves POST /models. The load goes on if the client disconnects.
func (m *multiModel) load(w *http1.Reply, r *http1.Request) {
	hash, url, err := m.readLoad(r)
	if err != nil {
		rest.WriteErrorAs(w, http.StatusBadRequest, err)
		return
	}
	path, err := m.check(url)
	switch {
	case err != nil:
		rest.WriteErrorAs(w, http.StatusBadRequest, err)
		return
	case path == "":
		refuse(w, http.StatusBadRequest)
		return
	}
	name := target(r, hash)
	m.log.Info().Msgf("Loading SageMaker TargetModel: %s", name)
	if status, err := m.register(r.Lifetime(), hash, name, m.locate(path)); err != nil {
		rest.WriteErrorAs(w, status, err)
		return
	}
	w.Send(http.StatusOK, nil)
}

// readLoad reads the body of a load; absent members are empty.
func (m *multiModel) readLoad(r *http1.Request) (hash, url string, err error) {
	err = m.bodies.Small(r, body.JSON(func(v jsontext.Value, _ *budget.Charge) error {
		for _, member := range [...]struct {
			name string
			text *string
		}{{"model_name", &hash}, {"url", &url}} {
			value := v.Member(member.name)
			if !value.Exists() {
				continue
			}
			text, err := value.Text()
			if err != nil {
				return err
			}
			if n := text.Len(); n > budget.MaxName {
				return infer.Errorf(infer.InvalidArg, "'%s' has %d bytes, but at most %d are allowed", member.name, n, budget.MaxName)
			}
			*member.text = text.String() // bound: budget.MaxName
		}
		return nil
	}))
	return hash, url, err
}

// register registers a repository and loads its model. After an error or a panic it unloads the
// model and its dependencies and unregisters the repository. The status belongs to the error.
func (m *multiModel) register(ctx context.Context, hash, name string, at location) (status int, err error) {
	if err := m.repositories.RegisterRepository(at.path, at.directory, name); err != nil {
		if infer.AsError(err).Code == infer.AlreadyExists {
			return http.StatusConflict, err
		}
		return http.StatusBadRequest, err
	}
	loaded := false
	defer func() {
		if !loaded {
			m.abandon(ctx, name, at.path)
		}
	}()
	if err := m.core.Load(ctx, name, "", nil); err != nil {
		return statusOf(err), err
	}
	loaded = true
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models[hash] == nil { // otherwise it keeps its first path, as in Triton
		m.models[hash] = &hosted{path: at.path}
	}
	return 0, nil
}

// abandon undoes a failed load. A model that still serves was loaded from elsewhere before, and
// stays.
func (m *multiModel) abandon(ctx context.Context, name, path string) {
	if _, err := m.core.Target(name, infer.LatestVersion); err != nil {
		if err := m.core.Unload(ctx, name, true); err != nil {
			m.log.Error().Msgf("unload model '%s' after a failed load: %v", name, err)
		}
	}
	if err := m.repositories.UnregisterRepository(path); err != nil {
		m.log.Error().Msgf("unregister '%s' after a failed load: %v", path, err)
	}
}

// invoke serves POST /models/<hash>/invoke.
func (m *multiModel) invoke(w *http1.Reply, r *http1.Request, hash string) {
	if m.find(hash) == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	if !m.ends.Allow(w, r, server.GroupInference) {
		return
	}
	name := target(r, hash)
	if e := m.log.Debug(); e.Enabled() {
		e.Msgf("Invoking SageMaker TargetModel: %s", name)
	}
	w.ContentType = "application/json"
	if err := m.ends.Infer(w, r, name, infer.LatestVersion); err != nil {
		rest.WriteErrorAs(w, statusOf(err), err)
	}
}

// unload serves DELETE /models/<hash>. It waits for requests in flight; other clients do not wait
// for it. Of two concurrent unloads the first to end has unloaded the model.
func (m *multiModel) unload(w *http1.Reply, r *http1.Request, hash string) {
	h := m.find(hash)
	if h == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	name := target(r, hash)
	m.log.Info().Msgf("Unloading SageMaker TargetModel: %s", name)
	if err := m.core.Unload(r.Lifetime(), name, true); err != nil {
		rest.WriteErrorAs(w, http.StatusBadRequest, err)
		return
	}
	ctx, stop := context.WithTimeout(r.Lifetime(), unloadPatience)
	defer stop()
	if err := m.repositories.AwaitUnloaded(ctx, name); err != nil {
		m.log.Error().Msgf("model '%s' is still in use after its unload: %v", name, err)
	}
	if !m.forget(hash, h) {
		refuse(w, http.StatusNotFound)
		return
	}
	if err := m.repositories.UnregisterRepository(h.path); err != nil {
		rest.WriteErrorAs(w, http.StatusBadRequest, err)
		return
	}
	w.Send(http.StatusOK, nil)
}

// forget removes a model and reports whether it was still known.
func (m *multiModel) forget(hash string, h *hosted) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models[hash] != h {
		return false
	}
	delete(m.models, hash)
	return true
}
