package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// forkTimeout is how long package python waits for a template to fork.
const forkTimeout = 5 * time.Second

// TestStoppedTemplateDelaysNoRestart wants clients of a lost stub to be answered, and the stub
// to come back, although the template does not move.
func TestStoppedTemplateDelaysNoRestart(t *testing.T) {
	r := newRig(t, nil)
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

// TestInterpreterThatLeavesThreads starts stubs as programs where the start of
// the interpreter leaves threads behind, which a fork would lack, and says so
// once.
func TestInterpreterThatLeavesThreads(t *testing.T) {
	dir := t.TempDir()
	site := "import threading, queue\n" +
		"asked, answered = queue.Queue(), queue.Queue()\n" +
		"threading.Thread(target=lambda: answered.put(asked.get()), name='of the site', daemon=True).start()\n"
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", dir)
	r := newRig(t, nil)
	m := r.start("asks", infer.Uint8)
	defer m.close()
	m.rows([]row{{"import sitecustomize as s; s.asked.put(7); print('answer', s.answered.get(timeout=60))", "done"}})
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.printed[0].String(), "answer 7\n") })
	other := r.start("dies_in_execute", infer.Uint8)
	defer other.close()
	other.wantGood()
	if n := strings.Count(r.log.String(), "leaves threads behind"); n != 1 || !strings.Contains(r.log.String(), `"threads":["of the site"]`) {
		t.Errorf("%d warnings say that threads are left behind, want 1 that names them", n)
	}
}
