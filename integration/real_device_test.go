package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

// realDevice reports whether tests of device tensors use the real driver instead of the fake one,
// as in "make test-gpu". They then ignore the driver's counts. On a machine with one device, it
// also serves as the second device (place in stub/tests/producer.py).
func realDevice() bool { return os.Getenv("NEREID_TEST_DEVICE") == "real" }

// standInAlone skips a test that needs the fake driver.
func standInAlone(t *testing.T, why string) {
	t.Helper()
	if realDevice() {
		t.Skip(why)
	}
}

// onDevice returns the environment variables of programs that see the devices. The file for counts
// and other settings are for the fake driver only.
func onDevice(t *testing.T, state string, more ...string) []string {
	t.Helper()
	if !realDevice() {
		return append([]string{"LD_LIBRARY_PATH=" + fakecuda.Dir(t), fakecuda.State + "=" + state}, more...)
	}
	return slices.DeleteFunc(more, func(variable string) bool { return strings.HasPrefix(variable, "FAKECUDA_") })
}

// launchOnDevices launches a server that sees the devices of onDevice.
func launchOnDevices(t *testing.T, repository, state string, more []string, flags ...string) *runningServer {
	t.Helper()
	program := append([]string{"env"}, onDevice(t, state, more...)...)
	return launchBehind(t, program, testkit.Python(t).Path, repository, flags...)
}

// TestStoriesOfRealDevicesAreReal fails if a real device is requested but missing, because the
// other tests would test nothing.
func TestStoriesOfRealDevicesAreReal(t *testing.T) {
	if !realDevice() {
		t.Skip("NEREID_TEST_DEVICE is not \"real\"")
	}
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": placedConfig + "instance_group [ { kind: KIND_GPU } ]", "m/1/model.py": placedModel})
	s := launchOnDevices(t, repository, filepath.Join(t.TempDir(), "state"), nil)
	s.waitReady()
	if p, err := s.placement("m", 0); err != nil || p.Kind != "GPU" {
		t.Errorf("got the placement %+v (error %v), want a GPU", p, err)
	}
}
