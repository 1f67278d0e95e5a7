package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// TestConfigIsCompleted checks that SetConfig works only within NewModel and only with
// AutoComplete. Instances see the final config.
func TestConfigIsCompleted(t *testing.T) {
	var env *sdk.ModelEnv
	a := &author{newModel: func(e *sdk.ModelEnv) error {
		env = e
		c := proto.Clone(e.Config()).(*kserve.ModelConfig)
		c.MaxBatchSize = 8
		return e.SetConfig(c)
	}}
	b, err := engine.Open(a.open, engine.Environment{Name: "b", Settings: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := b.Model(engine.Version{Name: "m", Version: 3, Directory: "/d"})
	answer, err := m.Complete(t.Context(), []byte(with("")))
	if err != nil || !strings.Contains(string(answer), `"max_batch_size":8`) {
		t.Errorf("got %s, %v, want the config with max_batch_size 8", answer, err)
	}
	if !env.AutoComplete || env.Name != "m" || env.Version != 3 || env.Directory != "/d" || env.Backend.Settings["k"] != "v" || env.Config().GetMaxBatchSize() != 8 {
		t.Errorf("got environment %+v", env)
	}
	must(t, env.SetConfig(env.Config()), "SetConfig is called outside NewModel")
	final := &kserve.ModelConfig{Name: "m", MaxBatchSize: 4}
	mustNot(t, m.Start(t.Context(), final, []byte("{}")))
	if env.Config() != final || string(env.ConfigJSON()) != "{}" {
		t.Errorf("got config %v, want the final one", env.Config())
	}
	env.ReportMemory(77)
	if n := m.ReportedMemory(); n != 77 {
		t.Errorf("got %d bytes reported, want 77", n)
	}
	m.Close()

	t.Run("not where it is complete", func(t *testing.T) {
		_, err := tryStart(t, &author{newModel: func(e *sdk.ModelEnv) error { return e.SetConfig(e.Config()) }}, with(""))
		must(t, err, "SetConfig is called though the config is not to be completed (AutoComplete is false)")
	})
	t.Run("nothing to say", func(t *testing.T) {
		m := b.Model(engine.Version{Name: "m"})
		a.newModel = nil
		if answer, err := m.Complete(t.Context(), []byte(with(""))); answer != nil || err != nil {
			t.Errorf("got %s, %v, want nothing", answer, err)
		}
		m.Close()
	})
}

// TestHooksThatHang checks that a cancelled load abandons hanging hooks. Models and instances that
// they create later are closed.
func TestHooksThatHang(t *testing.T) {
	for _, hook := range []string{"NewModel", "NewInstance"} {
		t.Run(hook, func(t *testing.T) {
			free, closed := make(chan struct{}), make(chan string, 3)
			ctx, cancel := context.WithCancel(t.Context())
			hang := func() error {
				cancel()
				<-free
				return nil
			}
			a := &author{execute: identity, closed: func(what string) { closed <- what }}
			if hook == "NewModel" {
				a.newModel = func(*sdk.ModelEnv) error { return hang() }
			} else {
				a.newInstance = func(*sdk.InstanceEnv) error { return hang() }
			}
			b, err := engine.Open(a.open, engine.Environment{Name: "b"})
			if err != nil {
				t.Fatal(err)
			}
			m := b.Model(engine.Version{Name: "m"})
			err = m.Start(ctx, &kserve.ModelConfig{}, nil)
			if hook == "NewInstance" {
				mustNot(t, err)
				_, err = m.Instance(ctx, engine.InstanceSpec{Name: "m_0"})
			}
			if err == nil {
				t.Error("got no error")
			}
			select {
			case <-m.Ended():
				t.Error("the model has ended, and its hook has not returned")
			default:
			}
			close(free)
			want := map[string]string{"NewModel": "model", "NewInstance": "instance"}[hook]
			if got := <-closed; got != want {
				t.Errorf("closed was the %s, want the %s", got, want)
			}
			<-m.Ended()
			m.Close()
			b.Close()
		})
	}
}

// TestInstancesAreMadeOneAfterAnother checks that instances are created one at a time unless the
// backend sets ParallelInstances.
func TestInstancesAreMadeOneAfterAnother(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprint(parallel), func(t *testing.T) {
			entered, free := make(chan string, 2), make(chan struct{})
			a := &author{execute: identity, attributes: sdk.Attributes{ParallelInstances: parallel}, newInstance: func(e *sdk.InstanceEnv) error {
				entered <- e.Name
				<-free
				return nil
			}}
			b, err := engine.Open(a.open, engine.Environment{Name: "b"})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			m := b.Model(engine.Version{Name: "m"})
			defer m.Close()
			mustNot(t, m.Start(t.Context(), &kserve.ModelConfig{}, nil))
			made := make(chan *engine.Instance, 2)
			for i := range 2 {
				go func() {
					in, err := m.Instance(t.Context(), engine.InstanceSpec{Name: fmt.Sprint(i)})
					if err != nil {
						t.Error(err)
					}
					made <- in
				}()
			}
			<-entered
			if parallel {
				<-entered // while the other one is still being created
			} else if len(entered) > 0 {
				t.Error("a second instance is made while the first one is")
			}
			close(free)
			for range 2 {
				if in := <-made; in != nil {
					mustNot(t, in.Close(t.Context()))
				}
			}
		})
	}
}

// TestCustomMetrics checks that a model's custom metrics are registered with the server.
func TestCustomMetrics(t *testing.T) {
	registry := metrics.New(metrics.Config{})
	holder := registry.Custom("m")
	r := start(t, &author{execute: identity}, with(""), func(r *fixture, _ *engine.Environment) { r.metrics = holder })
	m := r.author().Model.Metrics
	counters, err := m.NewFamily(sdk.Counter, "calls", "Calls.")
	mustNot(t, err)
	calls, err := counters.NewMetric(map[string]string{"b": "2", "a": "1"})
	mustNot(t, err)
	mustNot(t, calls.Increment(2))
	must(t, calls.Set(1), "operation 2 with 1 on a metric of kind 0")
	if v, err := calls.Value(); v != 2 || err != nil {
		t.Errorf("got %v, %v, want 2", v, err)
	}
	sizes, err := m.NewFamily(sdk.Histogram, "sizes", "Sizes.")
	mustNot(t, err)
	size, err := sizes.NewMetric(nil, 1, 10)
	mustNot(t, err)
	mustNot(t, size.Observe(5))
	_, err = m.NewFamily(sdk.Gauge, "calls", "Calls.")
	must(t, err, "Family name already exists with different type")
	mustNot(t, sizes.Close())
	must(t, size.Observe(1), "the metric has been closed")
	_, err = sizes.NewMetric(nil)
	must(t, err, "the family of the metric has been closed")
	shown := httptest.NewRecorder()
	registry.Handler().ServeHTTP(shown, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if text := shown.Body.String(); !strings.Contains(text, `calls{a="1",b="2"} 2`) || strings.Contains(text, "sizes") {
		t.Errorf("got metrics\n%s", text)
	}
	holder.End(false)
	none := start(t, &author{execute: identity}, with(""))
	_, err = none.author().Model.Metrics.NewFamily(sdk.Counter, "calls", "")
	must(t, err, "metrics not supported")
}

// TestLog checks that log messages carry their source file, and attributes follow the text.
func TestLog(t *testing.T) {
	r := start(t, &author{execute: identity}, with(""), func(_ *fixture, env *engine.Environment) {
		env.Enabled = func(level slog.Level) bool { return level > slog.LevelDebug }
	})
	log := r.author().Log
	log.Info("model m: requests in batch 2")
	log.With("a", 1).WithGroup("g").Warn("careful", "b", "x y", slog.Group("h", "c", true))
	log.Debug("not shown")
	want := "INFO model_test.go model m: requests in batch 2\nWARN model_test.go careful a=1 g.b=x y g.h.c=true\n"
	if got := r.said.String(); got != want {
		t.Errorf("got log %q, want %q", got, want)
	}
}

// strategist is a model that limits a batch's total bytes.
type strategist struct{ authorModel }

func (*strategist) BeginBatch() func(int64) bool {
	left := int64(10)
	return func(bytes int64) bool {
		if bytes == 13 {
			panic("unlucky")
		}
		left -= bytes
		return left >= 0
	}
}

type strategicAuthor struct{ author }

func (a *strategicAuthor) NewModel(*sdk.ModelEnv) (sdk.Model, error) { return &strategist{}, nil }

func TestStrategies(t *testing.T) {
	b, err := engine.Open(func(*sdk.BackendEnv) (sdk.Backend, error) { return &strategicAuthor{}, nil }, engine.Environment{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := b.Model(engine.Version{Name: "m"})
	defer m.Close()
	if m.Strategy() != nil {
		t.Error("a model that has not been made has a strategy")
	}
	mustNot(t, m.Start(t.Context(), &kserve.ModelConfig{}, nil))
	include := m.Strategy().Begin()
	var got []bool
	for _, n := range []int{4, 6, 13, 1} {
		got = append(got, include(&infer.Request{Inputs: []infer.Tensor{{Data: make([]byte, n)}}}))
	}
	if fmt.Sprint(got) != "[true true true false]" {
		t.Errorf("got %v", got)
	}
	if r := start(t, &author{execute: identity}, with("")); r.model.Strategy() != nil {
		t.Error("a model without a strategy has one")
	}
}

// TestModelClosedTwiceAtOnce checks that concurrent Close calls close the author's model once, and
// its strategy is not called afterwards.
func TestModelClosedTwiceAtOnce(t *testing.T) {
	var closed atomic.Int32
	made := &wildStrategist{fails: func() {}}
	made.closed = func(string) { closed.Add(1) }
	b, err := engine.Open(func(*sdk.BackendEnv) (sdk.Backend, error) { return &wildAuthor{model: made}, nil }, engine.Environment{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for n := range int32(50) {
		m := b.Model(engine.Version{Name: "m"})
		mustNot(t, m.Start(t.Context(), &kserve.ModelConfig{}, nil))
		s := m.Strategy()
		s.Begin()
		var closing sync.WaitGroup
		for range 2 {
			closing.Go(m.Close)
		}
		closing.Wait()
		if m.Strategy() != nil || s.Begin() != nil {
			t.Fatal("the strategy of a closed model is asked")
		}
		if got := closed.Load(); got != n+1 {
			t.Fatalf("the author's model is closed %d times, want %d", got, n+1)
		}
	}
}
