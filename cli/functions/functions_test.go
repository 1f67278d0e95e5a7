package functions_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/functions"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// try runs `nereid build` with the interpreter of the tests.
func try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	read := func(own *flag.FlagSet, args []string) ([]string, nereid.Options, error) {
		var server nereid.Options
		server.Backends.Settings = map[string]map[string]string{"python": {"python-executable": testkit.Python(t).Path}}
		names, err := command.Parse(own, args)
		return names, server, err
	}
	status = functions.Run(args, read, &out, &errs)
	return status, out.String(), errs.String()
}

func TestWrongCommandLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.py")
	if err := os.WriteFile(file, []byte("import nereid\n@nereid.model\ndef f(x) -> int:\n    return 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "the Python file is missing"},
		{[]string{"models", "--output=x"}, 2, "models is not a Python file: want a file such as app.py"},
		{[]string{file}, 2, "--output is missing: want the directory of the repository"},
		{[]string{"nothing.py", "--output=x"}, 1, "nothing.py: no such file or directory"},
		{[]string{file, "--output=" + t.TempDir()}, 1, file + ":2: f: parameter x has no annotation: write x: and a type\n"},
	} {
		if status, out, errs := try(t, test.args...); status != test.status || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%q: got status %d, %q and %q, want %d and %q", test.args, status, out, errs, test.status, test.want)
		}
	}
}

func TestOutputOfTheFileIsShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.py")
	if err := os.WriteFile(file, []byte("import nereid\nprint('loading')\n@nereid.model\ndef f(x: int) -> int:\n    return 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := t.TempDir()
	if status, out, errs := try(t, file, "--output="+output); status != 0 || out != output+" has f; serve them with nereid serve "+output+"\n" || errs != "loading\n" {
		t.Errorf("got status %d, %q and %q", status, out, errs)
	}
}

// TestWatchSeesChanges changes a file, and lets it disappear and come back.
func TestWatchSeesChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.py")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	read := time.Now()
	if err := os.Chtimes(file, read.Add(-time.Hour), read.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	changes := make(chan struct{}, 8) // more are dropped
	ended := make(chan struct{})      // closed when Watch returns
	go func() {
		defer close(ended)
		functions.Watch(ctx, []string{file}, read, func() []string {
			select {
			case changes <- struct{}{}:
			default:
			}
			return []string{file}
		})
	}()
	for _, change := range []func(){
		func() { write("ab") },
		func() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		func() { write("abc") },
	} {
		change()
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Fatal("the change was not seen")
		}
	}
	stop()
	<-ended
}

func TestMistakesAreTheUsers(t *testing.T) {
	var mistake *functions.Mistake
	file := filepath.Join(t.TempDir(), "app.py")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{"python-executable": testkit.Python(t).Path}
	if _, err := functions.Build(context.Background(), settings, file, t.TempDir(), functions.Copy, map[string]string{}, &strings.Builder{}); !errors.As(err, &mistake) {
		t.Errorf("got %v, want a Mistake", err)
	}
	settings["python-executable"] = filepath.Join(t.TempDir(), "python3")
	if _, err := functions.Build(context.Background(), settings, file, t.TempDir(), functions.Copy, map[string]string{}, &strings.Builder{}); err == nil || errors.As(err, &mistake) {
		t.Errorf("got %v, want an error about the interpreter", err)
	}
}
