package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// TestLargeOverridesAreRefused loads a model with a config that is too long and with configs that
// need much memory to parse. It checks the errors and that the heap stays near the memory charged.
func TestLargeOverridesAreRefused(t *testing.T) {
	account := budget.New(budget.Config{Limit: 256 << 20})
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), func(c *models.RegistryConfig) {
		c.Explicit, c.Memory = true, account
	})
	for _, tt := range []struct {
		name, config, want string
	}{
		{"too long", "{" + strings.Repeat(" ", 1<<20) + "}", "load parameter 'config' has 1048578 bytes, but at most 1048576 are allowed"},
		{"empty inputs", `{"input":[` + strings.Repeat("{},", 300_000) + `{}]}`, "bytes of memory"},
		{"dimensions", `{"input":[{"dims":[` + strings.Repeat("1,", 500_000) + `1]}]}`, "failed to poll"},
	} {
		var err error
		peak := testkit.PeakHeap(account.Total, func() { err = r.Load(t.Context(), "m", tt.config, nil) })
		var refused *infer.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, tt.want) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
		if peak.Live > 2*peak.Charged+32<<20 {
			t.Errorf("%s: %d MiB are live and %d MiB charged", tt.name, peak.Live>>20, peak.Charged>>20)
		}
	}
	if err := r.Load(t.Context(), strings.Repeat("m", 5000), "", nil); err == nil || !strings.Contains(err.Error(), "model name has 5000 bytes") {
		t.Errorf("a long name: got error %v", err)
	}
	if n := account.Total(); n != 0 {
		t.Errorf("%d bytes are charged at the end", n)
	}
}

// TestKeptOverridesStayCharged loads models with large configs and checks that the account has the
// memory that stays with them, until they are unloaded.
func TestKeptOverridesStayCharged(t *testing.T) {
	account := budget.New(budget.Config{Limit: 1 << 30})
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), func(c *models.RegistryConfig) {
		c.Explicit, c.Memory = true, account
	})
	for _, tt := range []struct{ name, before, each, after string }{
		{"parameters", `"parameters":{`, `"%d":{}`, `}`},
		{"named parameters", `"parameters":{`, `"a long name of a parameter %d":{"string_value":"a value"}`, `}`},
		{"inputs", `"input":[`, `{"name":"%d","data_type":"TYPE_FP32","dims":[1]}`, `]`},
		{"dimensions", `"input":[{"name":"a","data_type":"TYPE_FP32","dims":[`, `1%d`, `]}]`},
		{"tags", `"metric_tags":{`, `"%d":""`, `}`},
		{"files", `"cc_model_filenames":{`, `"%d":""`, `}`},
		{"sizes", `"dynamic_batching":{"preferred_batch_size":[`, `1%d`, `]},"max_batch_size":2000000000`},
		{"optimization", `"optimization":{"execution_accelerators":{"cpu_execution_accelerator":[`, `{"name":"%d"}`, `]}}`},
	} {
		var text strings.Builder
		for i := range 10_000 {
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, tt.each, i)
		}
		before := testkit.LiveHeap()
		if err := r.Load(t.Context(), "m", `{"backend":"fake",`+tt.before+text.String()+tt.after+"}", nil); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		kept, charged := testkit.LiveHeap()-before, account.Total()
		if charged < int64(text.Len()) || kept > charged+64<<10 {
			t.Errorf("%s: %d KiB are live and %d KiB charged for %d KiB", tt.name, kept>>10, charged>>10, text.Len()>>10)
		}
		if err := r.Unload(t.Context(), "m", true); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 10*time.Second, func() bool { return account.Total() == 0 })
	}
}

// TestServedOverridesStayChargedAfterAFailedLoad loads a model with a config that leaves its
// version as it is. A later load that fails must not end the charge, because the model is still
// served from that config.
func TestServedOverridesStayChargedAfterAFailedLoad(t *testing.T) {
	account := budget.New(budget.Config{Limit: 1 << 30})
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), func(c *models.RegistryConfig) {
		c.Explicit, c.Memory = true, account
	})
	load := func(config string) error { return r.Load(t.Context(), "m", config, nil) }
	if err := load(""); err != nil {
		t.Fatal(err)
	}
	const same = `{"backend":"fake","input":[{"name":"IN","data_type":"TYPE_INT32","dims":[1]}],"output":[{"name":"OUT","data_type":"TYPE_INT32","dims":[1]}],`
	if err := load(same + `"version_policy":{"specific":{"versions":[1` + strings.Repeat(",1", 1000) + `]}}}`); err != nil {
		t.Fatal(err)
	}
	charged := account.Total()
	if err := load(`{"backend":"missing"}`); err == nil {
		t.Fatal("a model without a backend was loaded")
	}
	if now := account.Total(); charged == 0 || now != charged {
		t.Errorf("%d bytes are charged, and %d after a load that has failed", charged, now)
	}
	if err := r.Unload(t.Context(), "m", true); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return account.Total() == 0 })
}
