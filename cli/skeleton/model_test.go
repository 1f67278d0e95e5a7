package skeleton_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/skeleton"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/config"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// try runs a command line.
func try(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = skeleton.Run(args, "dev", &out, &errs)
	return status, out.String(), errs.String()
}

// models are command lines for different skeletons.
var models = []struct {
	name  string
	flags []string
}{
	{"plain", nil},
	{"several", []string{"--input=A:INT32:4", "--input=B.x:FP32:2,-1", "--output=SUM:INT32:4", "--output=None:FP32:2,-1", "--output=REST:FP64:-1"}},
	{"strings", []string{"--input=TEXT:STRING:1", "--output=WORDS:TYPE_STRING:-1"}},
	{"batched", []string{"--max-batch-size=8", "--input=request:BOOL:3", "--output=response:BOOL:3", "--output=SCORES:FP16:5"}},
	{"many", []string{"--decoupled"}},
	{"many_batched", []string{"--decoupled", "--max-batch-size=4", "--output=OUT:BYTES:1"}},
	{"net", []string{"--torch"}},
	{"net-batched", []string{"--torch", "--max-batch-size=4", "--input=A:FP32:4", "--output=B:INT64:2"}},
}

// TestModelsPassTheirOwnTests creates models and runs their generated unit tests. PyTorch tests
// skip themselves if PyTorch is not installed.
func TestModelsPassTheirOwnTests(t *testing.T) {
	directory := t.TempDir()
	for _, m := range models {
		status, out, errs := try(append([]string{"model", m.name, "--directory", directory}, m.flags...)...)
		if status != 0 || errs != "" || !strings.Contains(out, filepath.Join(directory, m.name, "1/model.py")) {
			t.Fatalf("%s: got status %d, %q and %q", m.name, status, out, errs)
		}
		destination := filepath.Join(directory, m.name)
		text, err := os.ReadFile(filepath.Join(destination, "config.pbtxt"))
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := config.ParseText("config.pbtxt", text); err != nil || parsed.Name != m.name {
			t.Errorf("%s: got the config %v and error %v from\n%s", m.name, parsed, err, text)
		}
		for _, file := range []string{"client.py", "test_" + m.name + ".py", "README.md"} {
			if _, err := os.Stat(filepath.Join(destination, file)); err != nil {
				t.Error(err)
			}
		}
	}
	interpreters := testkit.Pythons(t)
	for _, python := range []testkit.Interpreter{interpreters[0], interpreters[len(interpreters)-1]} {
		command := exec.Command(python.Path, "-m", "pytest", "-q", "-p", "no:cacheprovider", directory)
		command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(testkit.Root(t), "pyutils"), "PYTHONDONTWRITEBYTECODE=1")
		output, err := command.CombinedOutput()
		if err != nil || !bytes.Contains(output, []byte(" passed")) {
			t.Errorf("pytest with %s: %v\n%s", python, err, output)
		}
	}
}

func TestModelsAreNeverOverwritten(t *testing.T) {
	directory := t.TempDir()
	destination := filepath.Join(directory, "mine")
	if err := os.Mkdir(destination, 0o755); err != nil {
		t.Fatal(err)
	}
	status, out, errs := try("model", "mine", "--directory="+directory)
	if status != 1 || out != "" || !strings.Contains(errs, destination+" already exists") {
		t.Errorf("got status %d, %q and %q, want 1 and the reason", status, out, errs)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v and %v, want the directory alone", entries, err)
	}
	if entries, err := os.ReadDir(destination); err != nil || len(entries) != 0 {
		t.Errorf("got %v and %v in the directory, want nothing", entries, err)
	}
}

func TestCommandLinesAreExplained(t *testing.T) {
	directory := t.TempDir()
	for _, test := range []struct {
		name   string
		args   []string
		status int
		says   string // in either output
	}{
		{"nothing", nil, 2, "Usage: nereid new KIND NAME"},
		{"help", []string{"--help"}, 0, "Usage: nereid new KIND NAME"},
		{"help of a kind", []string{"model", "--help"}, 0, "--max-batch-size N"},
		{"an unknown kind", []string{"house"}, 2, "nereid new: unknown kind \"house\"\nwant model, backend; see nereid new --help\n"},
		{"nearly a kind", []string{"modle", "m"}, 2, "nereid new: unknown kind \"modle\"\ndid you mean model? see nereid new --help\n"},
		{"no name", []string{"model"}, 2, "the name is missing"},
		{"two names", []string{"model", "a", "b"}, 2, `unexpected argument "b" after the name`},
		{"a path", []string{"model", "a/b"}, 2, `the name "a/b"`},
		{"an unknown flag", []string{"model", "a", "--color=red"}, 2, "-color"},
		{"no dims", []string{"model", "a", "--input=X:FP32"}, 2, "got 2 parts, want NAME:TYPE:DIMS"},
		{"an unknown type", []string{"model", "a", "--input=X:FLOAT:1"}, 2, `the type "FLOAT": want one of BOOL`},
		{"a type that numpy has not", []string{"model", "a", "--input=X:BF16:1"}, 2, `the type "BF16"`},
		{"a dimension of zero", []string{"model", "a", "--output=X:FP32:2,0"}, 2, `the dimension "0"`},
		{"a name twice", []string{"model", "a", "--output=X:FP32:2", "--output=X:FP32:2"}, 2, `the name "X" appears twice`},
		{"less than no batch", []string{"model", "a", "--max-batch-size=-1"}, 2, "--max-batch-size is -1"},
		{"strings for PyTorch", []string{"model", "a", "--torch", "--input=X:STRING:2"}, 2, "X is BYTES, which PyTorch does not support"},
		{"a backend with a keyword's name", []string{"backend", "go"}, 2, `the name "go" gives the Go package go, which is a keyword of Go: choose another name`},
		{"another case of a keyword", []string{"backend", "Func"}, 2, `the name "Func" gives the Go package func, which is a keyword of Go`},
		{"a backend with a predeclared name", []string{"backend", "string"}, 2, "which would hide a predeclared identifier of Go"},
		{"a backend that cannot be imported", []string{"backend", "main"}, 2, "which no Go file can import"},
		{"a backend named as what it imports", []string{"backend", "plugin"}, 2, "which main.go already imports from the SDK"},
		{"a backend named as a test", []string{"backend", "echo_test"}, 2, "which is reserved for Go tests"},
		{"a directory below a file", []string{"model", "a", "--directory=/dev/null/none"}, 1, "name another directory with --directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := try(test.args...)
			if status != test.status || !strings.Contains(out+errs, test.says) {
				t.Errorf("got status %d, %q and %q, want %d and %q", status, out, errs, test.status, test.says)
			}
		})
	}
	if entries, err := os.ReadDir(directory); err != nil || len(entries) != 0 {
		t.Errorf("got %v and %v, want nothing written", entries, err)
	}
}
