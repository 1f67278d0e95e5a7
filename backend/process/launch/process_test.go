package launch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/launch"
)

// TestMarksAreFound checks that a mark is found at the beginning of any variable, and only there.
func TestMarksAreFound(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, tt := range []struct {
		environment string
		want        bool
	}{
		{"", false},
		{"NEREID_STUB=a.1", true},
		{"NEREID_STUB=a.12\x00A=b\x00", true},
		{"A=b\x00NEREID_STUB=a.1\x00", true},
		{"A=" + long + "\x00B=" + long + "\x00NEREID_STUB=a.1", true},
		{strings.Repeat("A=b\x00", 5000) + "NEREID_STUB=a.1\x00", true},
		{"NEREID_STUB=b.1\x00A=b", false},
		{"NEREID_STUB=a", false},
		{"A=NEREID_STUB=a.1", false},
		{strings.Repeat("x", 4096) + "NEREID_STUB=a.1", false},
	} {
		if got := launch.HoldsMark(strings.NewReader(tt.environment), "a.1"); got != tt.want {
			t.Errorf("%.40q, %d bytes: got %v, want %v", tt.environment, len(tt.environment), got, tt.want)
		}
	}
}

// TestOOMFiles checks that the OOM counters of both versions of control groups are found.
func TestOOMFiles(t *testing.T) {
	got := launch.OomFilesOf("/c", "5:cpu,memory:/a\n1:name=systemd:/b\n0::/d/e\nrubbish\n")
	if want := []string{"/c/memory/a/memory.oom_control", "/c/d/e/memory.events"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
