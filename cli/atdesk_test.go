package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestServeDiffersInItsDefaultsAlone from the command line without a command.
func TestServeDiffersInItsDefaultsAlone(t *testing.T) {
	flags := []string{"--http-port=1", "--log-verbose=2", "--allow-client-shm=true"}
	desk, err := parseAtDesk(append([]string{"b", "a"}, flags...), noEnv, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := parseOptions(append([]string{"--model-repository=a", "--model-store=b"}, flags...), noEnv, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	if plain.HTTP.Address != "0.0.0.0" || plain.GRPC.Address != "0.0.0.0" || plain.Metrics.Address != "0.0.0.0" || !plain.ExitOnError || plain.Log.Desk {
		t.Errorf("without a command: got %+v, want tritonserver's defaults", plain)
	}
	plain.HTTP.Address, plain.GRPC.Address, plain.Metrics.Address, plain.ExitOnError, plain.Log.Desk = "127.0.0.1", "127.0.0.1", "127.0.0.1", false, true
	if !reflect.DeepEqual(desk, plain) {
		t.Errorf("got  %+v\nwant %+v", desk, plain)
	}
	if o, err := parseAtDesk([]string{"a", "--http-address=0.0.0.0", "--exit-on-error=true"}, noEnv, &strings.Builder{}); err != nil ||
		o.HTTP.Address != "0.0.0.0" || o.Metrics.Address != "0.0.0.0" || !o.ExitOnError {
		t.Errorf("got %+v and error %v, want flags before defaults", o, err)
	}
}

func TestServeMistakes(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{"repository/m/1", "configured/2"} {
		if err := os.MkdirAll(filepath.Join(folder, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"file", "repository/m/1/model.py", "configured/config.pbtxt"} {
		if err := os.WriteFile(filepath.Join(folder, path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
		{nil, 2, "nereid serve: no folder of models is given: nereid serve DIR serves those in DIR, and nereid new model NAME writes a first one\nnereid serve --help says more\n"},
		{[]string{in("repository"), "--http-prot=3"}, 2, "nereid serve: unrecognized option '--http-prot=3'\ndid you mean --http-port? nereid serve --help says more\n"},
		{[]string{in("none")}, 1, "nereid serve: the folder of models: open " + in("none") + ": no such file or directory\n"},
		{[]string{in("file")}, 1, "nereid serve: the folder of models: "},
		{[]string{in("repository/m")}, 1, "nereid serve: " + in("repository/m") + " is a model, since it has 1, and not a folder of models: give the one that it lies in, " + in("repository") + "\n"},
		{[]string{in("configured")}, 1, "nereid serve: " + in("configured") + " is a model, since it has config.pbtxt, "},
		{[]string{in("repository"), "--http-port=" + port}, 1, fmt.Sprintf("nereid serve: HTTP cannot be served: listen tcp 127.0.0.1:%s: bind: address already in use: "+
			"end the program that has the port, or choose another by --http-port\n", port)},
	} {
		status, stdout, stderr := runAs("nereid", append([]string{"serve"}, test.args...)...)
		if status != test.status || stdout != "" || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", test.args, status, stdout, stderr, test.status, test.want)
		}
	}
	if status, stdout, stderr := runAs("nereid", "serve", "--help"); status != 0 || !strings.HasPrefix(stdout, "Usage: "+serveCall+"\n") || stderr != "" {
		t.Errorf("--help: got status %d, %q and %q, want the usage", status, stdout, stderr)
	}
	if got := parentOf("."); !filepath.IsAbs(got) {
		t.Errorf("the folder above the working directory: got %q, want a whole path", got)
	}
}
