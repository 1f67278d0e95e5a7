package entry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/cli/entry"
)

func TestEntryPointBecomesOtherPrograms(t *testing.T) {
	line, err := entry.MachineWith(t, nil).Resolve([]string{"nereid-entrypoint", "sh", "-c", "exit 3"})
	if err != nil || filepath.Base(line.Exec) != "sh" || !filepath.IsAbs(line.Exec) || !slices.Equal(line.Args, []string{"-c", "exit 3"}) {
		t.Errorf("got %+v, error %v, want the path of sh and its arguments", line, err)
	}
	if line, err := entry.MachineWith(t, nil).Resolve([]string{"nereid-entrypoint", "no-such-program"}); err == nil || !strings.Contains(err.Error(), `"no-such-program" is neither`) {
		t.Errorf("got %+v, error %v, want it refused by name", line, err)
	}
}

func TestSageMakersPingModeIsOverridden(t *testing.T) {
	for _, test := range []struct {
		variables map[string]string
		want      string
	}{
		{map[string]string{"SAGEMAKER_TRITON_OVERRIDE_PING_MODE": "ready"}, "ready"},
		{map[string]string{"SAGEMAKER_TRITON_PING_MODE": "ready", "SAGEMAKER_TRITON_OVERRIDE_PING_MODE": "live"}, "ready"},
	} {
		test.variables["SAGEMAKER_MULTI_MODEL"] = "true"
		m := entry.MachineWith(t, test.variables)
		line, err := m.Resolve([]string{"serve"})
		if got := line.Getenv(m.Getenv)("SAGEMAKER_TRITON_PING_MODE"); err != nil || got != test.want {
			t.Errorf("%v: got %q, error %v, want %q", test.variables, got, err, test.want)
		}
	}
}

// TestAwaitRootsWaitsForALink checks that AwaitRoots waits until a link leads to a directory, such
// as the link of a sidecar that provides models.
func TestAwaitRootsWaitsForALink(t *testing.T) {
	there, root := t.TempDir(), filepath.Join(t.TempDir(), "models")
	if err := os.Symlink(filepath.Join(there, "later"), root); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		waited <- entry.AwaitRoots(t.Context(), []string{there, "s3://bucket/models", root}, time.Hour)
	}()
	if err := os.Mkdir(filepath.Join(there, "later"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("got error %v, want the directory found", err)
	}
}

func TestAwaitRootsGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := entry.AwaitRoots(t.Context(), []string{"/no/such/directory"}, 5*time.Minute)
		if !errors.Is(err, os.ErrNotExist) || !strings.HasSuffix(err.Error(), "timeout of 5m0s") || time.Since(began) != 5*time.Minute {
			t.Errorf("got error %v after %v, want the directory named after 5 minutes", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := entry.AwaitRoots(ctx, []string{"/no/such/directory"}, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the end of the context", err)
		}
	})
}
