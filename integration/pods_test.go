package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// linkServer makes a link to the server's binary and returns its path.
func linkServer(t *testing.T, name string) string {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestKServesCommandLineServes: the entry point of an image gets the arguments of KServe's runtime for Triton, and behind them, as they are
// appended, one that an InferenceService repeats. The models come later than the server, by a link that another container makes.
func TestKServesCommandLineServes(t *testing.T) {
	t.Setenv("MODEL_INIT_MODE", "async")
	root, port := filepath.Join(t.TempDir(), "models"), freePorts(t, 1)[0]
	s := launchProgram(t, []string{linkServer(t, "nereid-entrypoint"), "tritonserver"}, testkit.Python(t).Path, root,
		"--model-store="+root, "--allow-grpc=true", "--allow-http=true", fmt.Sprintf("--http-port=%d", port))
	s.http = port
	s.until("the wait for the repository", func() bool { return s.prints("the model repository is waited for") })
	if err := os.Symlink(writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel}), root); err != nil {
		t.Fatal(err)
	}
	s.waitReady()
	if status, body := s.request("POST", "/v2/models/m/infer", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`); status != http.StatusOK {
		t.Errorf("got %d, %s", status, body)
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestServerThatWaitsForItsRepositoryEndsBySIGTERM, as a pod that is deleted before its models have come.
func TestServerThatWaitsForItsRepositoryEndsBySIGTERM(t *testing.T) {
	t.Setenv("MODEL_INIT_MODE", "async")
	s := launch(t, "", filepath.Join(t.TempDir(), "never"))
	s.until("the wait for the repository", func() bool { return s.prints("the model repository is waited for") })
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
