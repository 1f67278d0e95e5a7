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

// realDevice reports whether stories about tensors on devices run with the driver of this machine, as "make test-gpu" has
// them, and not with the stand-in. They want nothing of its counts then, and a machine with one device has the second
// device of a story, too (place in stub/tests/producer.py).
func realDevice() bool { return os.Getenv("NEREID_TEST_DEVICE") == "real" }

// standInAlone skips a story that a real driver cannot tell.
func standInAlone(t *testing.T, why string) {
	t.Helper()
	if realDevice() {
		t.Skip(why)
	}
}

// onDevice is the environment of programs that see the devices. The file of counts, and what else is set, is the stand-in's.
func onDevice(t *testing.T, state string, more ...string) []string {
	t.Helper()
	if !realDevice() {
		return append([]string{"LD_LIBRARY_PATH=" + fakecuda.Dir(t), fakecuda.State + "=" + state}, more...)
	}
	return slices.DeleteFunc(more, func(variable string) bool { return strings.HasPrefix(variable, "FAKECUDA_") })
}

// launchOnDevices launches a server that sees the devices, as onDevice.
func launchOnDevices(t *testing.T, repository, state string, more []string, flags ...string) *runningServer {
	t.Helper()
	program := append([]string{"env"}, onDevice(t, state, more...)...)
	return launchBehind(t, program, testkit.Python(t).Path, repository, flags...)
}

// TestStoriesOfRealDevicesAreReal fails where a real device is asked for and there is none: the stories would show nothing.
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
