package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/conformance"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// written is the config of a model that supports every scenario.
const written = `
name: "m"
backend: "parrot"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
dynamic_batching { }
`

// parrot is a backend that copies inputs to outputs. It follows all rules except in methods that a
// test replaces.
type parrot struct {
	newModel    func(p *parrot) (sdk.Model, error)
	newInstance func(p *parrot) (sdk.Instance, error)
	execute     func(p *parrot, requests []*sdk.Request) error
	closed      func(p *parrot)

	mu        sync.Mutex
	opens     int
	instances int
	kept      []*sdk.Request
	bytes     []byte
}

// open is an sdk.New.
func (p *parrot) open(*sdk.BackendEnv) (sdk.Backend, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = 0
	p.opens++
	return p, nil
}

func (p *parrot) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (p *parrot) NewModel(*sdk.ModelEnv) (sdk.Model, error) {
	if p.newModel != nil {
		return p.newModel(p)
	}
	return parrotModel{p}, nil
}

func (p *parrot) Close() {}

type parrotModel struct{ p *parrot }

func (m parrotModel) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	m.p.mu.Lock()
	m.p.instances++
	m.p.mu.Unlock()
	if m.p.newInstance != nil {
		return m.p.newInstance(m.p)
	}
	return &parrotInstance{m.p, env.Statistics}, nil
}

func (m parrotModel) Close() {}

type parrotInstance struct {
	p          *parrot
	statistics sdk.Statistics
}

func (in *parrotInstance) Execute(_ context.Context, requests []*sdk.Request) error {
	if in.p.execute != nil {
		return in.p.execute(in.p, requests)
	}
	for _, r := range requests {
		now := sdk.Now()
		_ = in.statistics.Request(r, true, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: now, ExecEnd: now})
		reply(r)
		_ = r.Release(sdk.ReleaseAll)
	}
	return nil
}

func (in *parrotInstance) Close() {
	if in.p.closed != nil {
		in.p.closed(in.p)
	}
}

// reply responds with a copy of the input and returns the output's bytes.
func reply(r *sdk.Request) (sent []byte) {
	response, err := r.NewResponse()
	if err != nil {
		return nil
	}
	input, err := r.Input("IN")
	if err == nil {
		if sent, err = response.Output("OUT", sdk.Int32, input.Shape()); err == nil {
			copy(sent, input.Data())
		}
	}
	_ = response.Send(sdk.SendFinal, err)
	return sent
}

// each returns an Execute that calls f for each request.
func each(f func(p *parrot, r *sdk.Request)) func(*parrot, []*sdk.Request) error {
	return func(p *parrot, requests []*sdk.Request) error {
		for _, r := range requests {
			f(p, r)
		}
		return nil
	}
}

// reporter is an instance that reports a request's statistics too late.
type reporter struct{ parrotInstance }

func (in *reporter) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		reply(r)
		_ = r.Release(sdk.ReleaseAll)
		now := sdk.Now()
		_ = in.statistics.Request(r, true, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: now, ExecEnd: now})
	}
	return nil
}

type reporting struct{ parrotModel }

func (m reporting) NewInstance(env *sdk.InstanceEnv) (sdk.Instance, error) {
	return &reporter{parrotInstance{m.p, env.Statistics}}, nil
}

// short is the limit for backends that leave requests unanswered. Others get enough time for any
// machine.
const short = 2 * time.Second

func TestRulesAreKept(t *testing.T) {
	report, err := conformance.Check(t.Context(), conformance.Linked((&parrot{}).open), conformance.Options{}, conformance.Model{Config: written})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Status != conformance.Passed && r.Rule != "process" { // does not apply
			t.Errorf("%s: got %s (%v), want it passed", r.Rule, r.Status, r.Why)
		}
	}
	if len(report.Results) != 16 || len(report.Notes) != 0 {
		t.Errorf("got %d results and notes %q, want one for each of the 16 rules and none", len(report.Results), report.Notes)
	}
}

func TestBrokenRulesAreFound(t *testing.T) {
	testkit.Story(t)
	end := make(chan struct{})
	defer close(end)
	tests := []struct {
		name    string
		rule    string
		limit   time.Duration // for backends that never respond
		says    string        // part of the reason
		backend *parrot
	}{
		{"no model", "hooks", 0, "NewModel returned no model", &parrot{newModel: func(*parrot) (sdk.Model, error) { return nil, nil }}},
		{"a model that is refused", "hooks", 0, "no, thanks", &parrot{newModel: func(*parrot) (sdk.Model, error) { return nil, errors.New("no, thanks") }}},
		{"one instance alone", "hooks", 0, "there is one", &parrot{newInstance: func(p *parrot) (sdk.Instance, error) {
			if p.instances > 1 {
				return nil, errors.New("there is one")
			}
			return &parrotInstance{p: p, statistics: none{}}, nil
		}}},
		{"panics", "panics", 0, "Execute panicked", &parrot{execute: each(func(*parrot, *sdk.Request) { panic("boo") })}},
		{"panics at the end", "panics", 0, "Instance.Close panicked", &parrot{closed: func(*parrot) { panic("boo") }}},
		{"no answer", "one-answer", short, "had no final response", &parrot{execute: each(func(_ *parrot, r *sdk.Request) { _ = r.Release(sdk.ReleaseAll) })}},
		{"two answers", "one-answer", 0, "a response was sent after the final one", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			f := r.Factory()
			reply(r)
			_ = f.SendFlags(sdk.SendFinal)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"no release", "one-release", short, "answered and not released", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			reply(r)
			p.kept = append(p.kept, r)
		})}},
		{"two releases", "one-release", 0, "the request was released twice", &parrot{execute: each(func(_ *parrot, r *sdk.Request) {
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"an error after answers", "nothing-taken", 0, "Execute has returned an error, though", &parrot{execute: func(_ *parrot, requests []*sdk.Request) error {
			for _, r := range requests {
				reply(r)
			}
			return errors.New("no more")
		}}},
		{"another type", "outputs", 0, "OUT is TYPE_UINT32, want TYPE_INT32", &parrot{execute: each(func(_ *parrot, r *sdk.Request) {
			input, err := r.Input("IN")
			response, _ := r.NewResponse()
			if err == nil {
				_, err = response.Output("OUT", sdk.Uint32, input.Shape())
			}
			_ = response.Send(sdk.SendFinal, err)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"another shape", "outputs", 0, "OUT has shape [3], want 1 rows", &parrot{execute: each(func(_ *parrot, r *sdk.Request) {
			response, _ := r.NewResponse()
			_, err := response.Output("OUT", sdk.Int32, []int64{3})
			_ = response.Send(sdk.SendFinal, err)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"answers of others", "own-answers", 0, "request 0 got another response", &parrot{execute: func(_ *parrot, requests []*sdk.Request) error {
			turned := slices.Clone(requests)
			slices.Reverse(turned)
			var data [][]byte
			for _, r := range turned {
				input, err := r.Input("IN")
				if err != nil {
					data = append(data, nil)
					continue
				}
				data = append(data, slices.Clone(input.Data()))
			}
			for i, r := range requests {
				response, _ := r.NewResponse()
				output, err := response.Output("OUT", sdk.Int32, []int64{1, int64(len(data[i]) / 4)})
				copy(output, data[i])
				_ = response.Send(sdk.SendFinal, err)
				_ = r.Release(sdk.ReleaseAll)
			}
			return nil
		}}},
		{"writes to inputs", "inputs-unchanged", 0, "its inputs have other bytes", &parrot{execute: each(func(_ *parrot, r *sdk.Request) {
			if input, err := r.Input("IN"); err == nil && len(input.Data()) > 0 {
				input.Data()[0]++
			}
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"writes to what it has sent", "sent-unchanged", 0, "other bytes than when it was sent", &parrot{execute: func(p *parrot, requests []*sdk.Request) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.bytes) > 0 {
				p.bytes[0]++
			}
			for _, r := range requests {
				if sent := reply(r); p.instances == 1 { // two instances would write to each other's output
					p.bytes = sent
				}
				_ = r.Release(sdk.ReleaseAll)
			}
			return nil
		}}},
		{"nothing for nothing", "empty-tensors", short, "the request was not answered", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			if input, err := r.Input("IN"); err == nil && len(input.Data()) == 0 {
				p.kept = append(p.kept, r)
				return
			}
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"nothing for those who leave", "cancelled", short, "its request was not answered", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			if r.Cancelled() {
				p.kept = append(p.kept, r)
				return
			}
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"waits for the other instance", "instances", short, "was not answered and released", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.instances > 1 {
				p.kept = append(p.kept, r)
				return
			}
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"drops what it has at the end", "unload", short, "when its instance was closed", &parrot{execute: each(func(p *parrot, r *sdk.Request) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.opens == 3 { // the life that ends during requests
				p.kept = append(p.kept, r)
				return
			}
			reply(r)
			_ = r.Release(sdk.ReleaseAll)
		})}},
		{"statistics after the release", "statistics", 0, "statistics were reported after the release", &parrot{newModel: func(p *parrot) (sdk.Model, error) {
			return reporting{parrotModel{p}}, nil
		}}},
		{"a goroutine too many", "goroutines", short, "goroutines are there", &parrot{closed: func(*parrot) { go func() { <-end }() }}},
	}
	// Backends that never respond are checked concurrently. The others follow one by one because
	// goroutines are counted.
	reports := make([]*conformance.Report, len(tests))
	check := func(i int) (err error) {
		reports[i], err = conformance.Check(t.Context(), conformance.Linked(tests[i].backend.open), conformance.Options{Limit: tests[i].limit}, conformance.Model{Config: written})
		return err
	}
	var waiting sync.WaitGroup
	for i, test := range tests {
		if test.limit > 0 && test.rule != "goroutines" {
			waiting.Go(func() {
				if err := check(i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	waiting.Wait()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if reports[i] == nil {
				if err := check(i); err != nil {
					t.Fatal(err)
				}
			}
			if reports[i].Passed() {
				t.Error("the report says that no rule was broken")
			}
			for _, r := range reports[i].Results {
				why := strings.Join(r.Why, "\n")
				switch {
				case r.Rule == test.rule && (r.Status != conformance.Failed || !strings.Contains(why, test.says)):
					t.Errorf("%s: got %s (%s), want it broken because of %q", r.Rule, r.Status, why, test.says)
				case r.Rule != test.rule && r.Status == conformance.Failed && test.limit == 0:
					t.Errorf("%s: got it broken too: %s", r.Rule, why)
				}
			}
		})
	}
}

// none ignores statistics.
type none struct{}

func (none) Request(*sdk.Request, bool, sdk.Times) error { return nil }
func (none) Batch(int, sdk.Times) error                  { return nil }
func (none) Response(*sdk.ResponseFactory, int, int64, int64, int64, error) error {
	return nil
}

// completing is a parrot that completes its model's config.
type completing struct{ *parrot }

func (b completing) open(env *sdk.BackendEnv) (sdk.Backend, error) {
	if _, err := b.parrot.open(env); err != nil {
		return nil, err
	}
	return b, nil
}

func (b completing) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	if env.AutoComplete {
		c := proto.Clone(env.Config()).(*kserve.ModelConfig)
		c.MaxBatchSize = 4
		c.Input = []*kserve.ModelInput{{Name: "IN", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		c.Output = []*kserve.ModelOutput{{Name: "OUT", DataType: kserve.DataType_TYPE_INT32, Dims: []int64{-1}}}
		if err := env.SetConfig(c); err != nil {
			return nil, err
		}
	}
	return b.parrot.NewModel(env)
}

// TestRequestsAreAsTheCompletedConfigSays checks a model whose config has no inputs and outputs
// before its backend completes it.
func TestRequestsAreAsTheCompletedConfigSays(t *testing.T) {
	report, err := conformance.Check(t.Context(), conformance.Linked(completing{&parrot{}}.open), conformance.Options{}, conformance.Model{Config: `name: "m" backend: "parrot"`})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Status != conformance.Passed && r.Rule != "process" { // does not apply
			t.Errorf("%s: got %s (%v), want it passed", r.Rule, r.Status, r.Why)
		}
	}
	if len(report.Notes) != 0 {
		t.Errorf("got notes %q, want none", report.Notes)
	}
}
