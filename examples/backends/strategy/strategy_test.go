package strategy_test

import (
	"errors"
	"testing"

	"github.com/nereid-serving/nereid/examples/backends/identity"
	"github.com/nereid-serving/nereid/examples/backends/strategy"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
)

// host returns a model's config.
type host struct {
	sdk.ModelHost
	config *kserve.ModelConfig
}

func (h host) Config() *kserve.ModelConfig { return h.config }

// newModel opens a model with the given parameters.
func newModel(t *testing.T, open sdk.New, parameters map[string]string) (sdk.Model, error) {
	t.Helper()
	config := &kserve.ModelConfig{}
	for name, value := range parameters {
		if config.Parameters == nil {
			config.Parameters = map[string]*kserve.ModelParameter{}
		}
		config.Parameters[name] = &kserve.ModelParameter{StringValue: value}
	}
	b, err := open(&sdk.BackendEnv{})
	if err != nil {
		t.Fatal(err)
	}
	return b.NewModel(sdk.NewModelEnv(sdk.ModelEnv{}, host{config: config}))
}

// executions returns the number of batches that 12 requests of the given size form.
func executions(t *testing.T, m sdk.Model, bytes int64) (batches int) {
	t.Helper()
	strategist, ok := m.(sdk.Strategist)
	if !ok {
		t.Fatalf("got a %T, want a Strategist", m)
	}
	var include func(int64) bool
	for range 12 {
		if include == nil || !include(bytes) { // an excluded request starts the next batch
			batches++
			include = strategist.BeginBatch()
			include(bytes)
		}
	}
	return batches
}

func TestVolumeLimitsBatches(t *testing.T) {
	for limit, want := range map[string]int{"96": 4, "95": 6, "32": 12, "8": 12, "1000": 1} {
		m, err := newModel(t, strategy.Volume(identity.New), map[string]string{"MAX_BATCH_VOLUME_BYTES": limit})
		if err != nil {
			t.Fatal(err)
		}
		if got := executions(t, m, 32); got != want {
			t.Errorf("limit %s: got %d executions, want %d", limit, got, want)
		}
	}
}

func TestSingleHasOneRequestEach(t *testing.T) {
	m, err := newModel(t, strategy.Single(identity.New), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := executions(t, m, 32); got != 12 {
		t.Errorf("got %d executions, want 12", got)
	}
}

func TestVolumeNamesMissingSettings(t *testing.T) {
	for _, test := range []struct {
		parameters map[string]string
		code       sdk.Code
		text       string
	}{
		{nil, sdk.NotFound, "Unable to find parameters in model config"},
		{map[string]string{"OTHER": "1"}, sdk.NotFound, "Unable to find MAX_BATCH_VOLUME_BYTES parameter in model config"},
		{map[string]string{"MAX_BATCH_VOLUME_BYTES": "much"}, sdk.InvalidArg, "failed to convert 'much' to unsigned int64"},
	} {
		_, err := newModel(t, strategy.Volume(identity.New), test.parameters)
		var coded *sdk.Error
		if !errors.As(err, &coded) || coded.Code != test.code || coded.Message != test.text {
			t.Errorf("%v: got %v, want %q", test.parameters, err, test.text)
		}
	}
}
