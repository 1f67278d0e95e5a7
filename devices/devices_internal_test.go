package devices

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

// TestHelperThatDoesNotEnd checks that neither the count nor Close waits for a helper that a driver
// keeps alive after SIGKILL, and that no other helper is started.
func TestHelperThatDoesNotEnd(t *testing.T) {
	for _, when := range []string{"counting", "measuring"} {
		t.Run(when, func(t *testing.T) {
			control := filepath.Join(t.TempDir(), "control")
			if when == "counting" {
				t.Setenv(fakecuda.Init, "hang")
			} else {
				t.Setenv(fakecuda.Control, control)
			}
			d, log := StartFake(t, func(config *Config) {
				config.EndTimeout = time.Nanosecond // SIGKILL takes longer
				config.SampleTimeout = 500 * time.Millisecond
				if when == "counting" {
					config.CountTimeout = 10 * time.Millisecond
				}
			})
			if n := len(d.List()); (n == 0) != (when == "counting") {
				t.Errorf("got %d devices", n)
			}
			if when == "measuring" {
				if err := os.WriteFile(control, []byte("hang"), 0o600); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(t, Limit, func() bool { return d.Samples() == nil })
			}
			<-d.ended
			if text := log.String(); !strings.Contains(text, errStuck.Error()) {
				t.Errorf("the log does not say that the helper does not end:\n%s", text)
			}
		})
	}
}

// TestHelperEndsWithoutMeasuring checks that no helper keeps running if only the count is wanted.
func TestHelperEndsWithoutMeasuring(t *testing.T) {
	d, _ := StartFake(t, func(config *Config) { config.Measure = false })
	if n := len(d.List()); n != 2 {
		t.Errorf("got %d devices, want 2", n)
	}
	testkit.Eventually(t, Limit, func() bool { return d.config.Children.Count() == 0 })
}

func TestMeterSurvivesACounterThatBeginsAnew(t *testing.T) {
	m := &meter{last: 1000}
	for _, step := range []struct{ joules, want float64 }{{1000, 0}, {1010, 10}, {5, 10}, {25, 30}} {
		if got := m.read(step.joules); got != step.want {
			t.Errorf("at %v J: got %v, want %v", step.joules, got, step.want)
		}
	}
}
