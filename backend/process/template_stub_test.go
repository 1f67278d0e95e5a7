package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"golang.org/x/sys/unix"
)

// forkTimeout is how long package python waits for a template to fork.
const forkTimeout = 5 * time.Second

// TestStoppedTemplateDelaysNoRestart checks that although the template is stopped, a lost stub's
// clients get an error promptly, and the stub is restarted.
func TestStoppedTemplateDelaysNoRestart(t *testing.T) {
	testkit.Story(t)
	r := newFixture(t, nil)
	m := r.start("dies_in_execute", infer.Uint8)
	m.wantGood()
	if err := unix.Kill(r.template(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		begin := time.Now()
		m.wantError("SIGKILL", "Stub process 'dies_in_execute_0_0' is not healthy.")
		if took := time.Since(begin); took > forkTimeout*9/10 {
			t.Errorf("the client was answered after %s", took)
		}
		m.wantGoodAtLast()
	}
}

// TestTemplateDiesBeforeItTells kills a template that has forked a stub, before it can report it.
// That stub must end before another one starts for the same instance, because both would read the
// same rings.
func TestTemplateDiesBeforeItTells(t *testing.T) {
	dir := t.TempDir()
	site := `
import os

wait = os.waitpid

def stubs():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as title, open(f"/proc/{pid}/stat") as stat:
                parent, group = stat.read().rpartition(")")[2].split()[1:3]
                if title.read().startswith(b"triton_python_backend_stub") and int(parent) == os.getppid() and group == pid:
                    yield pid
        except OSError:
            continue

def lost(pid, options):
    wait(pid, options)
    while not list(stubs()):
        pass
    os.kill(os.getpid(), 9)

os.waitpid = lost
`
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", dir)
	r := newFixture(t, nil)
	m := r.start("identity", infer.Uint8)
	m.wantGood()
	if !strings.Contains(r.log.String(), "template did not fork a stub; starting it as a program") {
		t.Error("the template has not died in a fork")
	}
	pid := strconv.Itoa(m.pid())
	testkit.Eventually(t, patience, func() bool {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
			line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
			stat, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
			ours := strings.Contains(string(stat), fmt.Sprintf(" %d ", os.Getpid()))
			return ours && entry.Name() != pid && (strings.Contains(string(stat), ") Z ") || strings.Contains(string(line), "triton_python_backend_stub"))
		})
	})
}

// TestInterpreterThatLeavesThreads checks that stubs are started as programs if the interpreter's
// startup leaves threads, which a fork would lack. One warning is logged.
func TestInterpreterThatLeavesThreads(t *testing.T) {
	dir := t.TempDir()
	site := "import threading, queue\n" +
		"asked, answered = queue.Queue(), queue.Queue()\n" +
		"threading.Thread(target=lambda: answered.put(asked.get()), name='of the site', daemon=True).start()\n"
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", dir)
	r := newFixture(t, nil)
	m := r.start("asks", infer.Uint8)
	defer m.close()
	m.rows([]callCase{{"import sitecustomize as s; s.asked.put(7); print('answer', s.answered.get(timeout=60))", "done"}})
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.printed[0].String(), "answer 7\n") })
	other := r.start("dies_in_execute", infer.Uint8)
	defer other.close()
	other.wantGood()
	if n := strings.Count(r.log.String(), "the interpreter starts threads at startup"); n != 1 || !strings.Contains(r.log.String(), `"threads":["of the site"]`) {
		t.Errorf("%d warnings say that the interpreter starts threads, want 1 that names them", n)
	}
}

// TestIdleTemplateEndsAndComesBack checks that a model's own interpreter loses its template when
// idle, gets one again when needed, and has none after its last model is closed. The last template
// of all stays.
func TestIdleTemplateEndsAndComesBack(t *testing.T) {
	testkit.Story(t)
	r := newFixture(t, nil)
	settings := map[string]string{"python-executable": testkit.Python(t).Path, "template-idle-seconds": "1"}
	own := func(name string) *running {
		m, err := r.openWith(r.copyModel("dies_in_execute"), modelConfig(name, 1, infer.Uint8), settings)
		if err != nil {
			t.Fatal(err)
		}
		m.wantGood()
		return m
	}
	templates := func(want int) {
		t.Helper()
		if !testkit.Within(patience, func() bool { return len(r.templates()) == want }) {
			t.Fatalf("templates are %v, want %d", r.templates(), want)
		}
	}
	first, second := own("first"), own("second")
	own1 := r.template()
	third := r.start("identity", infer.Uint8) // uses the backend's interpreter
	templates(1)
	if r.template() == own1 {
		t.Errorf("template %d is the one that is left, want that of the backend's interpreter", own1)
	}
	for range 4 { // more often than a dying template is replaced
		first.wantError("SIGKILL", "Stub process 'first_0_0' is not healthy.")
		first.wantGoodAtLast()
		templates(1)
	}
	first.close()
	second.wantError("SIGKILL", "Stub process 'second_0_0' is not healthy.")
	second.wantGoodAtLast()
	second.close()
	templates(1)
	third.wantGood()
	if text := r.log.String(); strings.Contains(text, "template did not") {
		t.Errorf("the end of an idle template counts as its death:\n%s", text)
	}
}

// TestLastTemplateEndsWhenAnotherComes checks that a template kept only because it was the last one
// ends once another one starts.
func TestLastTemplateEndsWhenAnotherComes(t *testing.T) {
	r := newFixture(t, func(c *python.Config) { c.TemplateIdle = time.Nanosecond })
	config := modelConfig("first", 1, infer.Uint8)
	environment := filepath.Dir(filepath.Dir(testkit.Python(t).Path))
	config.Parameters = map[string]*kserve.ModelParameter{"EXECUTION_ENV_PATH": {StringValue: environment}}
	first, err := r.open(r.copyModel("identity"), config)
	if err != nil {
		t.Fatal(err)
	}
	kept := r.template()
	second := r.start("identity", infer.Uint8) // uses the backend's interpreter
	first.wantGood()
	second.wantGood()
	testkit.Eventually(t, patience, func() bool {
		now := r.templates()
		return len(now) == 1 && now[0] != kept
	})
}

// TestLastTemplateIsHandedOn checks that one template exists as long as there are models. It would
// end models' orphans if this process were killed.
func TestLastTemplateIsHandedOn(t *testing.T) {
	r := newFixture(t, nil)
	var models [2]*running
	for i, name := range []string{"first", "second"} {
		program := writeProgram(t, filepath.Join(t.TempDir(), "python3"), "#!/bin/sh\nexec '"+testkit.Python(t).Path+"' \"$@\"\n")
		m, err := r.openWith(r.copyModel("identity"), modelConfig(name, 1, infer.Uint8),
			map[string]string{"python-executable": program, "template-idle-seconds": "1"})
		if err != nil {
			t.Fatal(err)
		}
		models[i] = m
	}
	one := func() bool { return len(r.templates()) == 1 }
	testkit.Eventually(t, patience, one)
	models[0].close()
	testkit.Eventually(t, patience, one)
	models[1].close()
	testkit.Eventually(t, patience, func() bool { return len(r.templates()) == 0 })
}
