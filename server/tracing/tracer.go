package tracing

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
)

// Pair is one setting of a mode. Keys may repeat.
type Pair struct{ Key, Value string }

// Keys of Config.Settings. Others are shown to clients and have no effect.
const (
	SettingFile        = "file"          // of mode triton
	SettingFrequency   = "log-frequency" // of mode triton
	SettingMost        = "max-bytes"     // of mode triton, and only of this server: all files together
	SettingURL         = "url"           // this and the following of mode opentelemetry
	SettingResource    = "resource"      // <key>=<value>
	SettingQueueSize   = "bsp_max_queue_size"
	SettingDelay       = "bsp_schedule_delay" // ms
	SettingExportBatch = "bsp_max_export_batch_size"
)

// Keys returns the keys of a mode's settings.
func (m Mode) Keys() []string {
	if m == OpenTelemetry {
		return []string{SettingURL, SettingResource, SettingQueueSize, SettingDelay, SettingExportBatch}
	}
	return []string{SettingFile, SettingFrequency, SettingMost}
}

// Config configures a Tracer.
type Config struct {
	Mode  Mode  // default Triton
	Level Level // at startup, like the next two
	Rate  uint32
	Count int32 // below 0: no limit
	// Settings are the settings of the mode, in the given order.
	Settings []Pair
	// Now is the clock of schedulers and backends: ns of CLOCK_MONOTONIC. Required.
	Now    func() int64
	Getenv func(string) string // for OTEL_BSP_…; nil: no variables
	// Memory is charged for texts of tensors and names of activities; nil charges nothing.
	Memory *budget.Account
	Log    zerolog.Logger
}

// Tracer decides which requests are traced, and keeps the traces. A nil Tracer traces nothing.
type Tracer struct {
	config   Config
	start    values
	path     string // of mode triton
	shown    []Pair // what clients see after the mode; bound: the command line
	ids      atomic.Uint64
	recorder *recorder // nil if nothing can ever be traced

	on atomic.Pointer[table] // nil while nothing can be sampled

	mu     sync.Mutex
	global overrides
	own    map[string]overrides // of models that override something
	table  *table               // the settings in force, on or not
}

// table has the settings in force. It does not change.
type table struct {
	global *setting
	models map[string]*setting // bound: maxOwn
}

func (b *table) of(model string) *setting {
	if s := b.models[model]; s != nil {
		return s
	}
	return b.global
}

// Disabled returns a Tracer that shows the settings of a server without any, and traces nothing.
func Disabled() *Tracer {
	t := &Tracer{config: Config{Mode: Triton}, own: map[string]overrides{}, start: values{rate: 1000, count: -1}}
	t.table = &table{global: newSetting(t.start)}
	return t
}

// New returns a Tracer with the values at startup. A level without a file or with a rate of 0 is
// not an error: nothing is sampled.
func New(config Config) (*Tracer, error) {
	if config.Now == nil {
		return nil, errors.New("Config of tracing has no clock")
	}
	if config.Mode == "" {
		config.Mode = Triton
	}
	t := &Tracer{config: config, own: map[string]overrides{}}
	t.start = values{level: config.Level, rate: config.Rate, count: config.Count}
	switch config.Mode {
	case Triton:
		if err := t.useFile(); err != nil {
			return nil, err
		}
	case OpenTelemetry:
		if err := t.useCollector(); err != nil {
			return nil, err
		}
	default:
		return nil, infer.Errorf(infer.InvalidArg, "trace mode is %q, want triton or opentelemetry", config.Mode)
	}
	t.table = &table{global: newSetting(t.start)}
	t.publishLocked() // nothing else refers to the tracer yet
	return t, nil
}

// useFile prepares mode triton.
func (t *Tracer) useFile() error {
	most := int64(defaultMost)
	for _, s := range t.config.Settings {
		switch s.Key {
		case SettingMost:
			n, err := strconv.ParseInt(s.Value, 10, 64)
			if err != nil || n < 1 {
				return infer.Errorf(infer.InvalidArg, "trace setting %s is %q, want a number of bytes, 1 or more", SettingMost, s.Value)
			}
			most = n
			t.shown = append(t.shown, s)
		case SettingFile:
			t.path = s.Value
		case SettingFrequency:
			n, ok, fits := stoi(s.Value)
			if !ok || !fits {
				return infer.Errorf(infer.InvalidArg, "trace setting log-frequency is %q, want a number", s.Value)
			}
			t.start.frequency = uint32(n)
		default:
			t.shown = append(t.shown, s)
		}
	}
	if t.path != "" {
		t.recorder = newRecorder(newFiles(t.path, most, t.config.Log), t.config.Log)
	}
	return nil
}

// useCollector prepares mode opentelemetry.
func (t *Tracer) useCollector() error {
	c, shown, err := newCollector(&t.config)
	if err != nil {
		return err
	}
	t.shown = shown
	t.recorder = newRecorder(c, t.config.Log)
	return nil
}

// On reports whether a request may be sampled.
func (t *Tracer) On() bool { return t != nil && t.on.Load() != nil }

// Moment returns the current time for the first entries of a request that may turn out to be
// traced, or 0 while nothing can be sampled.
func (t *Tracer) Moment() int64 {
	if !t.On() {
		return 0
	}
	return t.config.Now()
}

// FrontEndLast asks Sample for a trace in which the entries of the front end come last.
const FrontEndLast = true

// Sample decides whether a request for a model is traced, and returns its trace or nil. header
// returns the client's headers traceparent and tracestate. The front end calls Finish of the trace
// after the last reply.
func (t *Tracer) Sample(model string, frontEndLast bool, header func(name string) (string, bool)) *trace.Trace {
	now := t.on.Load()
	if now == nil {
		return nil
	}
	s := now.of(model)
	c := trace.Config{
		Timestamps: s.level&Timestamps != 0, Tensors: s.level&Tensors != 0, FrontEndLast: frontEndLast, IDs: &t.ids, Now: t.config.Now,
	}
	brought := t.config.Mode == OpenTelemetry && readContext(&c, header)
	yes, last := s.sample(brought)
	if last {
		t.mu.Lock()
		t.publishLocked()
		t.mu.Unlock()
	}
	if !yes {
		return nil
	}
	if t.config.Mode == OpenTelemetry {
		c.Tensors = false
		if !brought {
			c.TraceID = trace.NewTraceID()
		}
	}
	if t.config.Memory != nil {
		c.Memory = texts{t.config.Memory}
	}
	c.Done = func(tree *trace.Tree) { t.recorder.put(tree, s) }
	return trace.New(c)
}

// texts charges texts of tensors and names of activities.
type texts struct{ account *budget.Account }

// Take implements trace.Memory. It does not make others give way: a scheduler may hold a lock.
func (m texts) Take(n int64) bool { return m.account.Try(budget.JSON, n) }

// Give implements trace.Memory.
func (m texts) Give(n int64) { m.account.Give(budget.JSON, n) }

// publishLocked updates On, which reports whether a setting in force can sample anything.
func (t *Tracer) publishLocked() {
	can := func(s *setting) bool {
		v := s.values()
		if t.recorder == nil || v.level == Off {
			return false
		}
		return t.config.Mode == OpenTelemetry || v.rate != 0 && v.count != 0
	}
	on := can(t.table.global)
	for _, s := range t.table.models {
		on = on || can(s)
	}
	if on {
		t.on.Store(t.table)
	} else {
		t.on.Store(nil)
	}
}

// maxOwn bounds the models with settings of their own, which keep them after an unload.
const maxOwn = 1024

// Change changes the global setting, or a model's. It returns when the collected traces of replaced
// settings have been written.
func (t *Tracer) Change(model string, c Change) error {
	if c == (Change{}) {
		return nil
	}
	old, err := t.change(model, &c)
	if err == nil && t.recorder != nil {
		t.recorder.retire(old)
	}
	return err
}

// change replaces settings, and returns the replaced ones.
func (t *Tracer) change(model string, c *Change) (old []*setting, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := &table{global: t.table.global, models: map[string]*setting{}}
	for name, s := range t.table.models {
		next.models[name] = s
	}
	if model != "" {
		own := t.own[model].changed(c)
		global := t.table.global.values()
		v := own.over(global)
		if !c.Count.Given {
			v.count = t.table.of(model).values().count
		}
		if err := t.refuse(v); err != nil {
			return nil, err
		}
		if _, has := t.own[model]; !has && own != (overrides{}) && len(t.own) >= maxOwn {
			return nil, infer.Errorf(infer.Unavailable, "%d models have trace settings of their own, which is the maximum; clear those of another model first", maxOwn)
		}
		if s := t.table.models[model]; s != nil {
			old = append(old, s)
		}
		if own == (overrides{}) {
			delete(t.own, model)
			delete(next.models, model)
		} else {
			t.own[model], next.models[model] = own, newSetting(v) // bound: maxOwn
		}
		t.table = next
		t.publishLocked()
		return old, nil
	}

	global := t.global.changed(c)
	v := global.over(t.start)
	if !c.Count.Given {
		v.count = t.table.global.values().count
	}
	if err := t.refuse(v); err != nil {
		return nil, err
	}
	t.global, next.global = global, newSetting(v)
	old = append(old, t.table.global)
	for name, s := range t.table.models {
		own := t.own[name].over(v)
		if t.own[name].count != nil || !c.Count.Given {
			own.count = s.values().count
		}
		next.models[name] = newSetting(own)
		old = append(old, s) // bound: maxOwn
	}
	t.table = next
	t.publishLocked()
	return old, nil
}

// Shown is one setting as clients see it. It has one value unless List is true.
type Shown struct {
	Key    string
	Values []string
	List   bool
}

// Settings returns the settings of a model, or the global ones, in Triton's order. Keys of
// the mode's own settings may repeat.
func (t *Tracer) Settings(model string) []Shown {
	t.mu.Lock()
	v := t.table.of(model).values()
	t.mu.Unlock()
	list := []Shown{
		{Key: KeyLevel, Values: v.level.Names(), List: true},
		one(KeyRate, strconv.FormatUint(uint64(v.rate), 10)),
		one(KeyCount, strconv.FormatInt(int64(v.count), 10)),
	}
	if t.config.Mode == Triton {
		list = append(list, one(KeyFrequency, strconv.FormatUint(uint64(v.frequency), 10)), one(KeyFile, t.path))
	}
	list = append(list, one(KeyMode, string(t.config.Mode)))
	for _, s := range t.shown {
		list = append(list, one(s.Key, s.Value)) // bound: the command line
	}
	return list
}

func one(key, value string) Shown { return Shown{Key: key, Values: []string{value}} }

// Close returns when the remaining traces are written or sent, or ctx has ended.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil || t.recorder == nil {
		return nil
	}
	t.mu.Lock()
	t.on.Store(nil)
	settings := []*setting{t.table.global}
	for _, s := range t.table.models {
		settings = append(settings, s) // bound: maxOwn
	}
	t.mu.Unlock()
	return t.recorder.close(ctx, slices.Clip(settings))
}
