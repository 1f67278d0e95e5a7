package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/terminal"
)

// topModels creates the models for `nereid top`: a working model, a model whose stub exits on
// request, and a model that fails to load.
func topModels(t *testing.T) string {
	t.Helper()
	return writeFiles(t, map[string]string{
		"alpha/config.pbtxt": oneFloat, "alpha/1/model.py": executing("raise KeyError('no such key')"),
		"beta/config.pbtxt": oneFloat + "instance_group { count: 2 kind: KIND_CPU }\n", "beta/1/model.py": executing("os.write(2, b'last words\\n')\nos._exit(3)"),
		"gamma/config.pbtxt": oneFloat, "gamma/1/model.py": "raise ValueError('no weights')\n",
	})
}

// urls returns the addresses of the server as flags of `nereid top`.
func (s *runningServer) urls() []string {
	return []string{fmt.Sprintf("--url=http://127.0.0.1:%d", s.http), fmt.Sprintf("--metrics-url=http://127.0.0.1:%d", s.metrics)}
}

// top runs `nereid top` without a terminal.
func (s *runningServer) top(arguments ...string) (stdout, stderr string, status int) {
	s.t.Helper()
	binary, err := buildServer()
	if err != nil {
		s.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	command := exec.Command(binary, append(append([]string{"top"}, s.urls()...), arguments...)...)
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil && command.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// row matches the row of a table whose columns begin with the given patterns.
func row(columns ...string) func(lines []string) bool {
	want := regexp.MustCompile(`^` + strings.Join(columns, `\s+`) + `(\s|$)`)
	return func(lines []string) bool { return slices.ContainsFunc(lines, want.MatchString) }
}

func shows(text string) func(lines []string) bool {
	return func(lines []string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) })
	}
}

// TestTopAtATerminal uses `nereid top` as an operator does: it sorts and filters models, reads a
// traceback and the loss of a stub, unloads, loads, and changes the number of instances. The view
// must survive a small terminal and a restart of the server.
func TestTopAtATerminal(t *testing.T) {
	repository := topModels(t)
	flags := []string{"--model-control-mode=explicit", "--load-model=alpha", "--load-model=beta", "--exit-on-error=false"}
	s := start(t, testkit.Python(t).Path, repository, flags...)
	for _, value := range []int{1, 1, 1, -1} {
		s.infer("alpha", value)
	}
	s.request("POST", "/v2/repository/models/gamma/load", "")
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, append([]string{"top", "--interval=100ms"}, s.urls()...)...)
	command.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "LINES=", "COLUMNS=")
	person := terminal.Start(t, command)
	const limit = startLimit
	press := func(keys string) { person.Type(keys) }

	person.AwaitScreen("both models ready", limit, func(lines []string) bool {
		return row("alpha", "1", "READY", "1/1")(lines) && row("beta", "1", "READY", "2/2")(lines) && row("gamma", "1", "UNAVAILABLE")(lines)
	})
	person.AwaitScreen("the instances of the first", limit, row("alpha_0_?0?", "ready|alpha_0", "ready"))

	press("e")
	person.AwaitScreen("the traceback of the error", limit, shows("KeyError: 'no such key'"))
	press("/gam\r")
	person.AwaitScreen("gamma alone", limit, func(lines []string) bool {
		return row("gamma", "1", "UNAVAILABLE")(lines) && !row("alpha")(lines)
	})
	press("d")
	person.AwaitScreen("why it did not load", limit, shows("ValueError: no weights"))
	press("u")
	person.AwaitScreen("that there is nothing to unload", limit, shows("gamma is not loaded"))
	press("\x1b")
	person.AwaitScreen("all models", limit, row("alpha"))
	press("S") // reverses the order
	person.AwaitScreen("the last model first", limit, func(lines []string) bool {
		order := func(name string) int {
			return slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+" ") })
		}
		return order("gamma") >= 0 && order("gamma") < order("beta") && order("beta") < order("alpha")
	})
	press("S")

	press("gji") // the first row, the second, its instances
	person.AwaitScreen("the instances of beta", limit, shows("instances of beta version 1"))
	s.infer("beta", -1)
	person.AwaitScreen("the loss", limit, func(lines []string) bool {
		return shows("exit, ")(lines) && shows("process exited with code 3 last words")(lines) && row("beta", "1", "READY", "2/2")(lines)
	})
	press("n3\r")
	person.AwaitScreen("a question", limit, shows("give beta 3 instances? [y/N]"))
	press("y")
	person.AwaitScreen("three instances", limit, row("beta", "1", "READY", "3/3"))
	press("u")
	person.AwaitScreen("a question", limit, shows("unload beta? [y/N]"))
	press("n")
	person.AwaitScreen("that nothing was done", limit, shows("nothing was changed"))
	press("u")
	person.AwaitScreen("a question", limit, shows("unload beta? [y/N]"))
	press("y")
	person.AwaitScreen("that it is unloaded", limit, row("beta", "1", "UNAVAILABLE", "0/0"))
	press("r")
	person.AwaitScreen("a question", limit, shows("load beta from its current files? [y/N]"))
	press("y")
	person.AwaitScreen("that it is loaded", limit, func(lines []string) bool {
		return row("beta", "1", "READY", "2/2")(lines) && shows("loaded beta")(lines)
	})

	person.Resize(11, 60)
	person.AwaitScreen("the table in a small terminal", limit, func(lines []string) bool {
		return len(lines) <= 11 && row("alpha", "1", "READY")(lines) && !slices.ContainsFunc(lines, func(l string) bool { return len([]rune(l)) > 60 })
	})
	person.Resize(3, 10)
	person.AwaitScreen("that it is too small", limit, shows("too small"))
	person.Resize(40, 150)
	person.AwaitScreen("all columns again", limit, func(lines []string) bool { return shows("  LOST")(lines) && shows("INSTANCE  STATE")(lines) })

	s.stop()
	person.AwaitScreen("that the server is lost", limit, func(lines []string) bool {
		return shows("lost the server")(lines) && row("alpha", "1", "[A-Z]+")(lines)
	})
	again := launch(t, testkit.Python(t).Path, repository, append(flags, fmt.Sprintf("--http-port=%d", s.http), fmt.Sprintf("--metrics-port=%d", s.metrics))...)
	again.http, again.metrics = s.http, s.metrics
	again.waitReady()
	person.AwaitScreen("the new server", limit, func(lines []string) bool {
		return !shows("lost the server")(lines) && shows(fmt.Sprintf("pid %d", again.cmd.Process.Pid))(lines) && row("beta", "1", "READY", "2/2")(lines)
	})
	press("l")
	person.AwaitScreen("its log", limit, shows("successfully loaded 'beta'"))
	press("q")
	if status := person.Wait(limit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	if !testkit.Within(limit, func() bool { return strings.Contains(person.Shown(), "\x1b[?1049l") }) {
		t.Error("the terminal is left as the view had it")
	}
}

// TestTopAsText checks the text and JSON output without a terminal, for servers with and without
// the status and metrics, and the messages about missing parts.
func TestTopAsText(t *testing.T) {
	s := start(t, testkit.Python(t).Path, topModels(t), "--model-control-mode=explicit", "--load-model=alpha", "--load-model=beta")
	for range 5 {
		s.infer("alpha", 1)
	}
	text, errs, status := s.top("--once", "--sort=rate", "--filter=a")
	for _, want := range []string{`(?m)^MODEL +VER`, `(?m)^alpha +1 +READY +1/1 +0 +0 +\S+ +0 +1\.0 +\S+s +\S+s +\S+s +\S+s +\d+ MiB +0$`, `(?m)^beta +1 +READY +2/2`, `(?m)^gamma`, `(?m)^instances of beta version 1$`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("got status %d, %s and\n%s\nwant %s", status, errs, text, want)
		}
	}
	var view struct {
		Models []struct {
			Model     string
			Succeeded float64
			Instances []struct {
				PID int
			} `json:"instance_list"`
		}
	}
	if text, errs, status = s.top("--once", "--metrics-url=", fmt.Sprintf("--url=http://127.0.0.1:%d", s.http)); status != 0 || strings.Contains(text, "guess") || !strings.Contains(text, "instances of beta version 1") {
		t.Errorf("top is not told the port of the metrics: got status %d, %s and\n%s", status, errs, text)
	}
	text, errs, status = s.top("--json")
	if err := json.Unmarshal([]byte(text), &view); err != nil || status != 0 {
		t.Fatalf("got status %d, %s, %v of %s", status, errs, err, text)
	}
	if len(view.Models) != 3 || view.Models[0].Model != "alpha" || view.Models[0].Succeeded != 5 || len(view.Models[1].Instances) != 2 || view.Models[1].Instances[0].PID <= 0 {
		t.Errorf("got %+v", view)
	}

	s = start(t, testkit.Python(t).Path, topModels(t), "--model-control-mode=explicit", "--load-model=beta", "--allow-status=false")
	text, _, _ = s.top("--once", "--interval=100ms")
	for _, want := range []string{`no status at .*/status: disabled`, `(?m)^beta +1 +READY +2 +0`, `(?m)^gamma`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("without the status: got\n%s\nwant %s", text, want)
		}
	}
	s.metrics = testkit.Port(t)
	text, _, status = s.top("--once", "--interval=100ms")
	if !strings.Contains(text, "no metrics at ") || !regexp.MustCompile(`(?m)^beta +1 +READY +-`).MatchString(text) || status != 0 {
		t.Errorf("without metrics: got status %d and\n%s", status, text)
	}
}

// TestTopInTmux checks the view in tmux, which many operators use.
func TestTopInTmux(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux")
	}
	s := start(t, testkit.Python(t).Path, topModels(t), "--model-control-mode=explicit", "--load-model=alpha")
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(arguments ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, "tmux", append([]string{"-f", "/dev/null", "-S", socket}, arguments...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v: %s", arguments, err, out)
		}
		return string(out)
	}
	pids := ""
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", socket, "kill-server").Run()
		for _, field := range strings.Fields(pids) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Error(err)
				continue
			}
			// If another test has made this process a subreaper, the daemons become its children.
			if !testkit.Within(startLimit, func() bool {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
				return unix.Kill(pid, 0) != nil
			}) {
				t.Errorf("process %d is still there", pid)
			}
		}
	})
	tmux(append([]string{"new-session", "-d", "-x", "120", "-y", "30", "env", "LC_ALL=C.UTF-8", binary, "top", "--interval=100ms"}, s.urls()...)...)
	pids = tmux("display-message", "-p", "#{pid} #{pane_pid}")
	await := func(what string, is func([]string) bool) {
		t.Helper()
		screen := ""
		if !testkit.Within(startLimit, func() bool {
			screen = tmux("capture-pane", "-p")
			return is(strings.Split(screen, "\n"))
		}) {
			t.Fatalf("tmux does not show %s:\n%s", what, screen)
		}
	}
	await("the model", row("alpha", "1", "READY", "1/1"))
	tmux("send-keys", "Down", "?")
	await("the keys", shows("change the number of its instances"))
	tmux("send-keys", "x", "Up", "u")
	await("a question", shows("unload alpha? [y/N]"))
	tmux("send-keys", "y")
	await("that it is unloaded", row("alpha", "1", "UNAVAILABLE"))
	tmux("resize-window", "-x", "50", "-y", "9")
	await("a small view", func(lines []string) bool { return row("alpha", "1", "UNAVAILABLE")(lines) && len(lines) <= 10 })
}
