package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
)

// Version describes the version of a model to open.
type Version struct {
	Name      string
	Version   int64
	Directory string       // of the model
	Host      backend.Host // for calls of the model; nil: they are rejected
	Metrics   Metrics      // for its custom metrics; nil: they are refused
	// Memory receives the number of bytes that the model reports to use; may be nil.
	Memory func(bytes int64)
	// Responses receives instances' reports of single responses; may be nil.
	Responses func(backend.ResponseReport)
}

// Metrics holds the custom metrics of a model. Calls do not overlap. Kinds and operations are the
// numbers on the wire, as in package metrics, which programs of authors do not link.
type Metrics interface {
	NewFamily(number uint64, name, description string, kind int) error
	NewMetric(family, number uint64, labels [][2]string, buckets []float64) error
	DropFamily(number uint64) error
	Apply(number uint64, operation uint32, value float64) error
	Value(number uint64) (value float64, known bool, err error)
}

// Model is one version of a model. Complete and Start are called one after the other; Close is
// called last. The other methods are safe for concurrent use.
type Model struct {
	backend *Backend
	version Version
	log     string // for texts: "model 'm'"
	env     *sdk.ModelEnv
	metrics *customMetrics

	config   atomic.Pointer[config]
	reported atomic.Int64
	making   chan struct{} // has a value while an instance is made, unless the backend allows several at once
	calls    calls
	alive    alive // instances, and a NewModel that has not returned

	mu        sync.Mutex
	model     sdk.Model // nil until NewModel has returned
	strategy  *strategy // nil until Strategy has made it
	within    bool      // NewModel has not returned: SetConfig may be called
	completed *kserve.ModelConfig
	closed    bool
}

// config is a model's config in both forms.
type config struct {
	parsed *kserve.ModelConfig
	json   []byte
}

// Model returns the model of a version. It calls no code of the author's.
func (b *Backend) Model(v Version) *Model {
	m := &Model{backend: b, version: v, log: "model '" + v.Name + "'", making: make(chan struct{}, 1)}
	m.metrics = &customMetrics{holder: v.Metrics}
	return m
}

// ParseConfig parses a config in the JSON of the config endpoint.
func ParseConfig(json []byte) (*kserve.ModelConfig, error) {
	c := &kserve.ModelConfig{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(json, c); err != nil {
		return nil, infer.Errorf(infer.Internal, "the config of a model cannot be read: %v", err)
	}
	return c, nil
}

// Complete creates the author's model, which may complete its config. The config is JSON; a nil
// result means that the model leaves it unchanged. If ctx is cancelled, Complete returns, and a
// model that NewModel returns later is closed.
func (m *Model) Complete(ctx context.Context, json []byte) ([]byte, error) {
	parsed, err := ParseConfig(json)
	if err != nil {
		return nil, err
	}
	m.config.Store(&config{parsed, json})
	if err := m.create(ctx, true); err != nil {
		return nil, err
	}
	if m.completed == nil {
		return nil, nil
	}
	answer, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.completed)
	if err != nil {
		return nil, infer.Errorf(infer.Internal, "the config that %s has set cannot be written: %v", m.log, err)
	}
	return answer, nil
}

// Start sets the final config, given in both forms, and creates the author's model unless Complete
// has.
func (m *Model) Start(ctx context.Context, parsed *kserve.ModelConfig, json []byte) error {
	m.config.Store(&config{parsed, json})
	m.mu.Lock()
	made := m.model != nil
	m.mu.Unlock()
	if made {
		return nil
	}
	return m.create(ctx, false)
}

// create calls NewModel in a separate goroutine.
func (m *Model) create(ctx context.Context, complete bool) error {
	env := sdk.ModelEnv{
		Name: m.version.Name, Version: m.version.Version, Directory: m.version.Directory, AutoComplete: complete,
		Backend: m.backend.sdk, Log: m.backend.logger(),
		Server: &server{model: m}, Metrics: m.metrics,
	}
	m.env = sdk.NewModelEnv(env, (*modelHost)(m))
	m.mu.Lock()
	m.within = true
	m.mu.Unlock()
	outcome := make(chan error, 1) // one value, from the goroutine
	m.alive.add()
	panics.Go(m.backend.env.Own, panics.Models, func() {
		returned := false
		var err error
		defer func() {
			if !returned {
				err = m.backend.gone("NewModel", m.log)
			}
			m.alive.done() // first: who has the outcome may look
			outcome <- err
		}()
		err = m.newModel()
		returned = true
	}, nil)
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.model == nil {
		m.closed = true // what NewModel makes is closed as soon as it is there
	}
	return infer.AsError(context.Cause(ctx))
}

// newModel calls NewModel.
func (m *Model) newModel() error {
	var made sdk.Model
	err := m.backend.hook("NewModel", m.log, func() (err error) {
		made, err = m.backend.backend.NewModel(m.env)
		return err
	})
	if err == nil && made == nil {
		err = infer.Errorf(infer.Internal, "backend '%s', %s: NewModel returned no model", m.backend.env.Name, m.log)
	}
	m.mu.Lock()
	m.within = false
	late := m.closed
	if err == nil && !late {
		m.model = made
	}
	m.mu.Unlock()
	if err == nil && late {
		m.closeModel(made)
	}
	return err
}

func (m *Model) closeModel(made sdk.Model) {
	_ = m.backend.apart("Model.Close", m.log, func() error {
		made.Close()
		return nil
	})
}

// Ended returns a channel that is closed when no function of the author's is running, of the model
// or of an instance. Close may be called then. No instance is created any more.
func (m *Model) Ended() <-chan struct{} { return m.alive.ended() }

// alive counts unfinished calls.
type alive struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil: nobody waits
}

func (a *alive) add() {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
}

func (a *alive) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
}

func (a *alive) ended() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if a.none == nil {
		a.none = make(chan struct{})
	}
	return a.none
}

// Close closes the author's model. All of its instances have been closed.
func (m *Model) Close() {
	m.mu.Lock()
	made, asked := m.model, m.strategy
	m.model, m.strategy, m.closed = nil, nil, true
	m.mu.Unlock()
	if asked != nil {
		close(asked.over)
	}
	if made != nil {
		m.closeModel(made)
	}
}

// ReportedMemory returns how many bytes the model reports to use.
func (m *Model) ReportedMemory() int64 { return m.reported.Load() }

func (m *Model) decoupled() bool {
	return m.config.Load().parsed.GetModelTransactionPolicy().GetDecoupled()
}

// mostConfig is the maximum size of a completed config, in bytes of JSON. It and the other fields
// fit into a frame.
const mostConfig = 1000 << 10

// modelHost implements the author's ModelEnv.
type modelHost Model

// Config implements sdk.ModelHost.
func (h *modelHost) Config() *kserve.ModelConfig { return h.config.Load().parsed }

// ConfigJSON implements sdk.ModelHost.
func (h *modelHost) ConfigJSON() []byte { return h.config.Load().json }

// SetConfig implements sdk.ModelHost.
func (h *modelHost) SetConfig(changed *kserve.ModelConfig) error {
	m := (*Model)(h)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.within:
		return infer.Errorf(infer.Internal, "%s: SetConfig is called outside NewModel", m.log)
	case !m.env.AutoComplete:
		return infer.Errorf(infer.Internal, "%s: SetConfig is called though the config is not to be completed (AutoComplete is false)", m.log)
	case changed == nil:
		return infer.Errorf(infer.InvalidArg, "%s: SetConfig is called without a config", m.log)
	}
	own := proto.Clone(changed).(*kserve.ModelConfig)
	json, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(own)
	if err != nil {
		return infer.Errorf(infer.InvalidArg, "%s: the config of SetConfig cannot be written: %v", m.log, err)
	}
	if len(json) > mostConfig {
		return infer.Errorf(infer.InvalidArg, "%s: the config of SetConfig has %d bytes as JSON, want at most %d", m.log, len(json), mostConfig)
	}
	m.completed = own
	m.config.Store(&config{own, json})
	return nil
}

// ReportMemory implements sdk.ModelHost.
func (h *modelHost) ReportMemory(bytes int64) {
	m := (*Model)(h)
	m.reported.Store(max(bytes, 0))
	if m.version.Memory != nil {
		m.version.Memory(max(bytes, 0))
	}
}
