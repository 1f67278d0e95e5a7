package mirror_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nereid-serving/nereid/models/mirror"
)

// fullVariable is set in the child process of TestAFullDiskLeavesNothing, which has its own mount
// namespace.
const fullVariable = "NEREID_TEST_FULL_DISK"

// TestAFullDiskLeavesNothing copies a model and fetches an archive to a small file system that
// fills up meanwhile, and checks that nothing is left.
func TestAFullDiskLeavesNothing(t *testing.T) {
	if os.Getenv(fullVariable) != "" {
		mirror.FillInTheMiddle(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	command := exec.Command(os.Args[0], "-test.run=^TestAFullDiskLeavesNothing$", "-test.v")
	command.Env = append(os.Environ(), fullVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	output, err := command.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this machine gives no namespaces for mounts")
	}
	if strings.Contains(string(output), "--- SKIP") {
		t.Skip(string(output))
	}
	if err != nil || !strings.Contains(string(output), "--- PASS: TestAFullDiskLeavesNothing") {
		t.Errorf("got %v: %s", err, output)
	}
}
