package metrics_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/metrics"
)

// TestStubCountsOfGoneModelsEnd counts stubs of ever new models and checks that the counts of the
// last ones and of a loaded model are left.
func TestStubCountsOfGoneModelsEnd(t *testing.T) {
	r := metrics.New(metrics.Config{})
	m := r.Model("loaded", 1, metrics.ModelOptions{})
	defer m.Close()
	r.StubStarted("loaded")
	const many = 3000
	for i := range many {
		name := fmt.Sprint("new", i)
		r.StubStarted(name)
		r.StubLost(name, "exit")
		r.StubLost(name, "signal")
		r.StubRestarted(name)
		if i%100 == 0 {
			r.StubStarted("often")
		}
	}
	text := metrics.Render(t, r)
	for _, family := range []string{"starts", "losses", "restarts"} {
		if n := strings.Count(text, "\nnereid_stub_"+family+"_total{"); n < 900 || n > 2000 {
			t.Errorf("%s has %d series of %d models", family, n, many)
		}
	}
	metrics.Contains(t, text, `nereid_stub_starts_total{model="loaded"} 1`, `nereid_stub_starts_total{model="often"} 30`,
		fmt.Sprintf(`nereid_stub_losses_total{cause="signal",model="new%d"} 1`, many-1))
}
