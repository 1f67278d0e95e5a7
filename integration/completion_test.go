package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// namedNereid creates a directory for PATH that has the server as nereid.
func namedNereid(t *testing.T) (folder string) {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	if err := os.Symlink(binary, filepath.Join(folder, "nereid")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// shell runs a shell command with the server on PATH and returns its output.
func shell(t *testing.T, folder string, line ...string) string {
	t.Helper()
	path, err := exec.LookPath(line[0])
	if err != nil {
		t.Skipf("no %s here", line[0])
	}
	command := exec.Command(path, line[1:]...)
	command.Dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(command.Dir, "models"), 0o755); err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "HOME="+command.Dir)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(output)
}

// TestBashCompletes types the beginning of command lines and Tab into an interactive bash, and
// checks the completed lines.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	folder := namedNereid(t)
	command := exec.Command(bash, "--norc", "--noprofile", "-i")
	command.Dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(command.Dir, "repository", "greeter", "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "HOME="+command.Dir, "PS1=ready> ", "TERM=dumb", "INPUTRC=/dev/null")
	s := terminal.Start(t, command)
	s.Type("source <(nereid completion bash)\n")
	for _, line := range []struct{ typed, want string }{
		{"nereid benc\t", "nereid bench "},
		{"nereid env ver\t", "nereid env verify "},
		{"nereid --model-rep\t", "nereid --model-repository "},
		{"nereid --model-repository rep\t", "nereid --model-repository repository/"},
		{"nereid --model-repository=rep\t", "nereid --model-repository=repository/"},
		{"nereid --log-format=I\t", "nereid --log-format=ISO8601 "},
		{"nereid bench m --prot\t", "nereid bench m --protocol "},
		{"nereid bench m --protocol=g\t", "nereid bench m --protocol=grpc "},
		{"nereid serve repository --load-model=gr\t", "nereid serve repository --load-model=greeter "},
	} {
		s.Await("ready> ", startLimit)
		s.Type(line.typed)
		s.Await(line.want, startLimit)
		s.Type("\x15\n") // Ctrl-U clears the line; an interrupt could arrive while bash is still completing
	}
	s.Await("ready> ", startLimit)
	s.Type("exit\n")
	s.Wait(startLimit)
}

func TestFishCompletes(t *testing.T) {
	folder := namedNereid(t)
	output := shell(t, folder, "fish", "--no-config", "-c", `source (nereid completion fish | psub)
complete -C "nereid benc"; complete -C "nereid --log-format "; complete -C "nereid --model-repository mod"; complete -C "nereid --log-format=I"`)
	for _, want := range []string{"bench\tSends", "\nISO8601\n", "\nmodels/", "\n--log-format=ISO8601\n"} {
		if !strings.Contains(output, want) {
			t.Errorf("got %q, want %q in it", output, want)
		}
	}
}

// TestZshCompletes calls the completion function directly, with stubs for the zsh functions that
// display candidates.
func TestZshCompletes(t *testing.T) {
	folder := namedNereid(t)
	output := shell(t, folder, "zsh", "-f", "-c", `compdef() { print -r "bound $*" }
_describe() { print -rl -- "${(@P)2}" }
compset() { print -r "compset $*" }
_files() { print -r "files $*" }
source <(nereid completion zsh)
words=(nereid benc) CURRENT=2 _nereid
words=(nereid --log-format '') CURRENT=3 _nereid
words=(nereid --model-repository=mod) CURRENT=2 _nereid
words=(nereid bench m --json '') CURRENT=5 _nereid`)
	for _, want := range []string{"bound _nereid nereid\n", "bench:Sends", "\nISO8601:", "\ncompset -P --*=\nfiles -/\n", "\ncompset -P --*=\nfiles \n"} {
		if !strings.Contains(output, want) {
			t.Errorf("got %q, want %q in it", output, want)
		}
	}
}

// TestManualPageIsClean checks that groff, with all warnings enabled, has none for the manual page,
// and that man can show it.
func TestManualPageIsClean(t *testing.T) {
	folder := namedNereid(t)
	if output := shell(t, folder, "sh", "-c", "! command -v groff >/dev/null || nereid man | groff -man -ww -Tutf8 -z 2>&1"); output != "" {
		t.Errorf("groff complains:\n%s", output)
	}
	if output := shell(t, folder, "sh", "-c", "! command -v man >/dev/null || { nereid man >page.1 && man -P cat -l page.1 && echo shown; }"); output != "" &&
		(!strings.Contains(output, "NAME") || !strings.HasSuffix(output, "shown\n")) {
		t.Errorf("man shows:\n%s", output)
	}
}
