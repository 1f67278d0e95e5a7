package amplification

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestFloodsDoNotHoldUpTheEnd starts one process for each golden frame of the kinds that processes
// send. Each process sends its frame repeatedly to a client that does not read. The server must
// still stop within its exit timeout.
func TestFloodsDoNotHoldUpTheEnd(t *testing.T) {
	const (
		exit = 2 * time.Second
		more = 4 * time.Second // allowance for a busy machine
	)
	golden := filepath.Join(testkit.Root(t), "ipc", "testdata")
	frames, err := goldenFrames(golden)
	if err != nil || len(frames) == 0 {
		t.Fatalf("got %d golden frames, error %v", len(frames), err)
	}
	var repository string
	v := serve(t, func(o *nereid.Options) {
		repository = o.Repository.Paths[0]
		o.ExitTimeout = exit
		for name := range frames {
			testkit.WriteFiles(t, repository, map[string]string{
				name + "/config.pbtxt": configOf(hostileBackend) + "model_transaction_policy { decoupled: true }",
				name + "/1/":           "",
			})
		}
	})
	calls := map[string]*http2Conn{}
	for name := range frames {
		writeCase(t, filepath.Join(repository, name, "1"), golden, frameCase{Frame: name, Form: "as it is", Endless: true})
		v.ask(t, name, "load")
		calls[name] = v.call(t, "ModelStreamInfer", name)
		defer calls[name].close()
	}
	for name := range frames {
		testkit.Eventually(t, patience, func() bool {
			_, err := os.Stat(filepath.Join(repository, name, "1", sentFile))
			return err == nil || calls[name].over() // the server has ended the process
		})
	}
	begun := time.Now()
	v.stopped = true
	err = v.stop()
	if took := time.Since(begun); took > exit+more {
		t.Errorf("the server ended after %v with error %v, want %v at most", took, err, exit)
	}
}
