package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestServiceManagerIsTold checks the notifications to the service manager: that the server is
// ready, that it is alive, and that it is stopping. Models must not see the manager's variables.
func TestServiceManagerIsTold(t *testing.T) {
	address := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_ = socket.SetReadDeadline(time.Now().Add(2 * startLimit))
	next := func() string {
		t.Helper()
		message := make([]byte, 4096)
		n, err := socket.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	gate := filepath.Join(t.TempDir(), "gate")
	repository := writeFiles(t, map[string]string{
		"m/config.pbtxt": `backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }`,
		"m/1/model.py": "import os, time\nwhile not os.path.exists('" + gate + "'):\n    time.sleep(0.01)\n" +
			returning(`pb_utils.Tensor("OUT", np.array(["seen:" + " ".join(k for k in os.environ if k.startswith(("NOTIFY", "WATCHDOG")))], object))`),
	})
	t.Setenv("NOTIFY_SOCKET", address)
	t.Setenv("WATCHDOG_USEC", "200000")
	s := launch(t, testkit.Python(t).Path, repository, "--exit-timeout-secs=120", "--exit-delay-secs=1")
	if got := next(); got != "STATUS=Loading models\nEXTEND_TIMEOUT_USEC=30000000" {
		t.Errorf("at the start: got %q", got)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got := next()
	for strings.HasPrefix(got, "EXTEND_TIMEOUT_USEC=") { // of a slow start
		got = next()
	}
	if got != "READY=1\nSTATUS=Model versions loaded: 1" {
		t.Errorf("when it serves: got %q", got)
	}
	for range 2 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("while it serves: got %q", got)
		}
	}
	if _, body := s.request("POST", "/v2/models/m/infer", `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`); !strings.Contains(body, `"seen:"`) {
		t.Errorf("a model sees the variables of the manager: %s", body)
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	for got = next(); got == "WATCHDOG=1"; {
		got = next()
	}
	if !strings.HasPrefix(got, "STOPPING=1\n") || !strings.HasSuffix(got, "EXTEND_TIMEOUT_USEC=131000000") {
		t.Errorf("after SIGTERM: got %q", got)
	}
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}
