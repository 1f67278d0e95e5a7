package python

import (
	"testing"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"golang.org/x/sys/unix"
)

// TestStoppedTemplate wants clients of a lost stub to be answered, and the stub
// to come back, although the template does not move.
func TestStoppedTemplate(t *testing.T) {
	r := newRig(t, nil)
	m := r.start("dies_in_execute", infer.Uint8)
	m.wantGood()
	if err := unix.Kill(r.template().process.pid, unix.SIGSTOP); err != nil {
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
