package leaks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leakVariable tells the re-executed test binary what to leave behind.
const leakVariable = "NEREID_TESTKIT_LEAK"

// memoryVariable gives it a directory instead of /dev/shm, where other packages' tests would see
// its leftovers.
const memoryVariable = "NEREID_TESTKIT_MEMORY"

func TestMain(m *testing.M) {
	if os.Getenv(leakVariable) != "" {
		patience = 300 * time.Millisecond
		sharedMemory = os.Getenv(memoryVariable)
	}
	os.Exit(Run(m))
}

// leaks are the things that TestLeak leaves behind, with a part of Run's report.
var leaks = map[string]struct {
	leak func(t *testing.T)
	want string
}{
	"nothing": {func(*testing.T) {}, ""},
	"goroutine": {
		func(*testing.T) { go func() { select {} }() },
		"left a goroutine behind: goroutine ",
	},
	"file": {
		func(t *testing.T) {
			if _, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				t.Fatal(err)
			}
		},
		"left a file behind: descriptor ",
	},
	"zombie": {
		func(t *testing.T) {
			cmd := exec.Command("/bin/true")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Release(); err != nil { // otherwise a pidfd is left as well, until it is collected
				t.Fatal(err)
			}
		},
		"state Z",
	},
	"orphan": {
		func(t *testing.T) {
			if err := exec.Command("/bin/sh", "-c", "sleep 20 >&- 2>&- &").Run(); err != nil {
				t.Fatal(err)
			}
		},
		"sleep 20",
	},
	"name": {
		func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(sharedMemory, "leaked"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"left a name behind: ",
	},
	"mapping": {
		func(t *testing.T) {
			fd, err := unix.MemfdCreate("leaked", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(unix.Ftruncate(fd, 4096), mapForever(fd), unix.Close(fd)); err != nil {
				t.Fatal(err)
			}
		},
		"memfd:leaked",
	},
}

func mapForever(fd int) error {
	_, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	return err
}

// TestLeak does nothing unless TestRunFindsLeaks re-executes it.
func TestLeak(t *testing.T) {
	if what := os.Getenv(leakVariable); what != "" {
		leaks[what].leak(t)
	}
}

// TestRunFindsLeaks runs this binary again for each kind of leak.
func TestRunFindsLeaks(t *testing.T) {
	if os.Getenv(leakVariable) != "" {
		t.Skip("this is the re-executed binary")
	}
	for name, test := range leaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLeak$")
			cmd.Env = append(os.Environ(), leakVariable+"="+name, memoryVariable+"="+t.TempDir())
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()

			if name == "orphan" {
				endOrphan(t, stderr.String())
			}
			if test.want == "" {
				if err != nil {
					t.Fatalf("got %v and %q, want success", err, stderr.String())
				}
				return
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("got %v, want exit status 1; stderr: %s", err, stderr.String())
			}
			if !strings.Contains(stderr.String(), test.want) {
				t.Fatalf("got %q, want it to contain %q", stderr.String(), test.want)
			}
			if lines := strings.Count(stderr.String(), "testkit: the tests left"); lines != 1 {
				t.Fatalf("got %d leaks reported, want 1: %s", lines, stderr.String())
			}
		})
	}
}

// TestMarkIsSeenWhileAProcessExecs checks that the mark of a process that constantly calls exec is
// found.
func TestMarkIsSeenWhileAProcessExecs(t *testing.T) {
	script := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(script, []byte("exec /bin/sh \"$0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", script)
	cmd.Env = append(os.Environ(), markVariable+"=again")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	space := make([]byte, environmentBytes)
	for range 3000 {
		if !isMarked(cmd.Process.Pid, "again", space) {
			t.Fatal("the process is not seen")
		}
	}
}

// endOrphan kills the process that the report names, so that this run does not leave it behind
// itself.
func endOrphan(t *testing.T, report string) {
	_, rest, _ := strings.Cut(report, "process behind: ")
	var pid int
	if _, err := fmt.Sscan(rest, &pid); err != nil {
		t.Fatalf("no process id in %q: %v", report, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
