package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// runLimit bounds every wait of these tests.
const runLimit = 60 * time.Second

func newRunner(t *testing.T) *launch.Children {
	t.Helper()
	c, err := launch.NewChildren(zerolog.Nop(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestRunReturnsTheOutput runs programs that end in several ways, with their own environment
// and directory.
func TestRunReturnsTheOutput(t *testing.T) {
	c := newRunner(t)
	directory := t.TempDir()
	t.Setenv("OF_THE_SERVER", "yes")
	for _, test := range []struct {
		script, want, err string
	}{
		{"echo out; echo err >&2; echo $A$OF_THE_SERVER; pwd", "out\nerr\n1\n" + directory + "\n", ""},
		{"echo last words; exit 3", "last words\n", "sh exited with code 3"},
		{"kill -TERM $$", "", "sh was ended by signal 15 (SIGTERM)"},
		{"(sleep 600 & ); echo left", "left\n", ""}, // keeps the pipe open
	} {
		output, err := c.Run(t.Context(), []string{"/bin/sh", "-c", test.script}, []string{"A=1", "PATH=/usr/bin:/bin"}, directory)
		if text := fmt.Sprint(err); output != test.want || text != test.err && (err != nil || test.err != "") {
			t.Errorf("%s: got %q, error %v, want %q, error %q", test.script, output, err, test.want, test.err)
		}
	}
	output, err := c.Run(t.Context(), []string{"sh", "-c", "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done"}, nil, "")
	if err != nil || len(output) != launch.MostPrinted || !strings.HasSuffix(output, "\n29999\n") {
		t.Errorf("much output: got %d bytes, error %v, want the last %d", len(output), err, launch.MostPrinted)
	}
	if n := c.Count(); n != 0 {
		t.Errorf("%d processes are watched after all have ended", n)
	}
	if _, err := c.Run(t.Context(), []string{"/nonexistent"}, nil, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such program: got error %v", err)
	}
}

// TestRunEndsWithItsContext checks that the program, its process group and its daemon are killed.
func TestRunEndsWithItsContext(t *testing.T) {
	c := newRunner(t)
	directory := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, []string{"/bin/sh", "-c", "sleep 600 & echo $! >group; setsid sleep 600 & echo $! >daemon; echo $$ >self; wait"}, os.Environ(), directory)
		ended <- err
	}()
	pids := make(map[string]int)
	testkit.Eventually(t, runLimit, func() bool {
		for _, name := range []string{"group", "daemon", "self"} {
			text, err := os.ReadFile(filepath.Join(directory, name))
			if pids[name], _ = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || pids[name] == 0 {
				return false
			}
		}
		return true
	})
	cancel(errors.New("the load was given up"))
	if err := <-ended; err == nil || err.Error() != "sh was ended: the load was given up" {
		t.Errorf("got error %v", err)
	}
	for _, pid := range pids {
		testkit.Eventually(t, runLimit, func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
	}
	if _, err := c.Run(ctx, []string{"/bin/true"}, nil, ""); err == nil || err.Error() != "the load was given up" {
		t.Errorf("after the end of its context: got error %v", err)
	}
}
