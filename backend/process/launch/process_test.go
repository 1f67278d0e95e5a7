package launch_test

import (
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/launch"
)

// TestOOMFiles checks that the OOM counters of both versions of control groups are found.
func TestOOMFiles(t *testing.T) {
	got := launch.OomFilesOf("/c", "5:cpu,memory:/a\n1:name=systemd:/b\n0::/d/e\nrubbish\n")
	if want := []string{"/c/memory/a/memory.oom_control", "/c/d/e/memory.events"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
