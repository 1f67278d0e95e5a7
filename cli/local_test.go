package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/flags"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// TestServeDiffersInItsDefaultsAlone checks that `nereid serve` and the command line without a
// command parse flags alike and differ only in their defaults.
func TestServeDiffersInItsDefaultsAlone(t *testing.T) {
	more := []string{"--http-port=1", "--log-verbose=2", "--allow-client-shm=true"}
	serving, err := flags.ParseServe(append([]string{"b", "a"}, more...), NoEnv, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := flags.Parse(append([]string{"--model-repository=a", "--model-store=b"}, more...), NoEnv, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	if plain.HTTP.Address != "0.0.0.0" || plain.GRPC.Address != "0.0.0.0" || plain.Metrics.Address != "0.0.0.0" || !plain.ExitOnError || plain.Log.Interactive {
		t.Errorf("without a command: got %+v, want tritonserver's defaults", plain)
	}
	plain.HTTP.Address, plain.GRPC.Address, plain.Metrics.Address, plain.ExitOnError, plain.Log.Interactive = "127.0.0.1", "127.0.0.1", "127.0.0.1", false, true
	if !reflect.DeepEqual(serving, plain) {
		t.Errorf("got  %+v\nwant %+v", serving, plain)
	}
	if o, err := flags.ParseServe([]string{"a", "--http-address=0.0.0.0", "--exit-on-error=true"}, NoEnv, &strings.Builder{}); err != nil ||
		o.HTTP.Address != "0.0.0.0" || o.Metrics.Address != "0.0.0.0" || !o.ExitOnError {
		t.Errorf("got %+v and error %v, want flags before defaults", o, err)
	}
}

func TestServeMistakes(t *testing.T) {
	folder := testkit.WriteFiles(t, t.TempDir(), map[string]string{"file": "", "repository/m/1/model.py": "", "configured/2/": "", "configured/config.pbtxt": "", "above/README": "", "above/models/m/1/model.py": ""})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "nereid serve: no model repository given: nereid serve DIR serves the models in DIR, and nereid new model NAME creates a first one\nsee nereid serve --help\n"},
		{[]string{in("repository"), "--http-prot=3"}, 2, "nereid serve: unrecognized option '--http-prot=3'\ndid you mean --http-port? see nereid serve --help\n"},
		{[]string{in("repository"), "--http-port", "70000"}, 2, "nereid serve: --http-port is 70000, want a port from 0 to 65535\nsee nereid serve --help\n"},
		{[]string{in("none")}, 1, "nereid serve: the model repository: open " + in("none") + ": no such file or directory: " +
			"nereid serve needs the directory that contains the models' directories; nereid new model NAME creates a first model\n"},
		{[]string{in("file")}, 1, "nereid serve: the model repository: open " + in("file") + ": not a directory: " +
			"nereid serve needs the directory that contains the models' directories, such as " + folder + "/NAME/1/model.py\n"},
		{[]string{in("repository/m")}, 1, "nereid serve: " + in("repository/m") + " is a model, because it contains 1, and not a model repository: use nereid serve " + in("repository") + "\n"},
		{[]string{in("repository/m/1")}, 1, "nereid serve: " + in("repository/m/1") + " is a version directory, because it contains model.py, and not a model repository: use nereid serve " + in("repository") + "\n"},
		{[]string{in("above")}, 1, "nereid serve: " + in("above") + " contains no model, but " + in("above/models") + " does: use nereid serve " + in("above/models") + "\n"},
		{[]string{in("configured")}, 1, "nereid serve: " + in("configured") + " is a model, because it contains config.pbtxt, "},
		{[]string{in("repository"), "--http-port=" + port}, 1, fmt.Sprintf("nereid serve: HTTP cannot listen: listen tcp 127.0.0.1:%s: bind: address already in use: "+
			"stop the program that uses the port, or choose another with --http-port\n", port)},
		{[]string{in("repository"), "--http-address=192.0.2.1", "--http-port=" + port}, 1, "nereid serve: HTTP cannot listen: listen tcp 192.0.2.1:" + port +
			": bind: cannot assign requested address\n"},
		{[]string{in("repository"), "--http-port=0", "--grpc-address=unix:" + in("file")}, 1, "nereid serve: GRPC cannot listen: " + in("file") + " exists and is not a Unix socket\n"},
		{[]string{in("repository"), "--http-port=0", "--allow-grpc=false", "--allow-metrics=false", "--request-memory-byte-size=1000"}, 1, "error: creating server: Internal - RequestMemoryBytes (--request-memory-byte-size) is 1000, " +
			"want at least 1048576 bytes, or 0 for half of the memory\n"},
	} {
		status, stdout, stderr := RunAs("nereid", append([]string{"serve"}, test.args...)...)
		if status != test.status || stdout != "" || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", test.args, status, stdout, stderr, test.status, test.want)
		}
	}
	if status, stdout, stderr := RunAs("nereid", "serve", "--help"); status != 0 || !strings.HasPrefix(stdout, "Usage: "+serveCall+"\n") || stderr != "" {
		t.Errorf("--help: got status %d, %q and %q, want the usage", status, stdout, stderr)
	}
	t.Chdir(in("above/models/m/1"))
	if _, _, stderr := RunAs("nereid", "serve", "."); stderr != "nereid serve: . is a version directory, because it contains model.py, and not a model repository: use nereid serve "+in("above/models")+"\n" {
		t.Errorf("in a version directory: got %q", stderr)
	}
	if got := parentOf("."); !filepath.IsAbs(got) {
		t.Errorf("the folder above the working directory: got %q, want a whole path", got)
	}
}

// TestAddressesAreCheckedBeforeModelsAreLoaded starts a server whose socket cannot be created.
func TestAddressesAreCheckedBeforeModelsAreLoaded(t *testing.T) {
	folder := testkit.WriteFiles(t, t.TempDir(), map[string]string{"m/config.pbtxt": "backend: \"python\"", "m/1/model.py": ""})
	status, stdout, stderr := RunAs("nereid", "--model-repository="+folder, "--http-address=unix:"+folder+"/none/http", "--allow-grpc=false", "--allow-metrics=false")
	if status != 1 || !strings.Contains(stderr, "failed to start HTTP service: Unavailable - ") || strings.Contains(stdout, "loading: m:1") {
		t.Errorf("got status %d, %q and %q, want an error and no load", status, stdout, stderr)
	}
}

func TestWaitingCountsRequests(t *testing.T) {
	o := &flags.Options{}
	o.ExitTimeout, o.ExitDelay = 30*time.Second, 5*time.Second
	for want, counts := range map[string]map[*models.Info]int{
		"": {},
		"waiting up to 35 s for 1 request to finish; press Ctrl-C again to stop at once\n":  {{}: 1},
		"waiting up to 35 s for 5 requests to finish; press Ctrl-C again to stop at once\n": {{Name: "a"}: 2, {Name: "b"}: 3},
	} {
		if got := waiting(o, counts); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFirstModelIsForEmptyFolders(t *testing.T) {
	empty, full := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(full, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		paths   []string
		control nereid.ControlMode
		want    string
	}{
		{[]string{empty}, nereid.ControlNone, "there is no model in " + empty + ": create one with nereid new model NAME --directory " + empty + "; then start the server again\n"},
		{[]string{empty}, nereid.ControlPoll, "create one with nereid new model NAME --directory " + empty + "\n"},
		{[]string{empty}, nereid.ControlExplicit, ""},
		{[]string{empty, full}, nereid.ControlNone, ""},
		{[]string{"s3://bucket/models"}, nereid.ControlNone, ""},
	} {
		o := &flags.Options{}
		o.Repository.Paths, o.Repository.Control = test.paths, test.control
		if got := firstModel(o); !strings.HasSuffix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%q, %s: got %q, want %q", test.paths, test.control, got, test.want)
		}
	}
}
