package devices

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

const Limit = 30 * time.Second

// StartFake counts the fake driver's devices, after change has edited the Config.
func StartFake(t *testing.T, change func(*Config)) (*Devices, *testkit.Buffer) {
	t.Helper()
	python := testkit.Python(t).Path
	helper, err := filepath.Abs("../stub/nereid_devices")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", fakecuda.Dir(t))
	log := &testkit.Buffer{}
	children, err := launch.NewChildren(zerolog.New(log), false)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Children: children, Helper: helper, MinCapability: DefaultCapability, Measure: true, Log: zerolog.New(log),
		Interpreters: func() ([]string, error) { return []string{python}, nil }, Pause: time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	d := Start(config)
	t.Cleanup(func() {
		d.Close()
		if config.EndTimeout != 0 {
			testkit.Eventually(t, Limit, func() bool { return children.Count() == 0 })
		} else if n := children.Count(); n != 0 {
			t.Errorf("%d processes are still watched after Close", n)
		}
		children.Close()
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return d, log
}
