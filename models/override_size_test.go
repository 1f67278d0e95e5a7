package models_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// TestLargeOverridesAreRefused loads a model with a config that is too long and with configs that
// need much memory to parse. It checks the errors and that the heap stays near the memory charged.
func TestLargeOverridesAreRefused(t *testing.T) {
	account := budget.New(budget.Config{Limit: 256 << 20})
	r := models.NewTestRegistry(t, models.WriteModels(t, map[string][]int64{"m": {1}}), models.NewFakeBackend(), func(c *models.RegistryConfig) {
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
