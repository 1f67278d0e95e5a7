package integration

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestShortRequestsDoNotWaitBehindALongOne keeps one of two instances busy. The other instance must
// serve all requests that arrive meanwhile, even requests already given to the busy instance.
func TestShortRequestsDoNotWaitBehindALongOne(t *testing.T) {
	testkit.Story(t)
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": oneFloat + "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
		"m/1/model.py": misbehavingHead + `
class TritonPythonModel:
    def initialize(self, args):
        self.directory = args["model_repository"]

    def execute(self, requests):
        if is_bad(requests):
            open(os.path.join(self.directory, "begun"), "w").close()
            while not os.path.exists(os.path.join(self.directory, "over")):
                time.sleep(0.001)
        return answer(requests)
`,
	})
	s := start(t, testkit.Python(t).Path, root)
	for round := range 5 {
		begun, over := filepath.Join(root, "m", "begun"), filepath.Join(root, "m", "over")
		for range 50 {
			s.infer("m", 1) // the server learns again that executions are short
		}
		var long, shorts sync.WaitGroup
		for range 8 {
			shorts.Go(func() {
				for i := range 40 {
					if status, body := s.infer("m", i); status != 200 {
						t.Errorf("short request: got %d %s", status, body)
					}
				}
			})
		}
		long.Go(func() {
			if status, body := s.infer("m", -1); status != 200 {
				t.Errorf("long request: got %d %s", status, body)
			}
		})
		s.until("busy", func() bool {
			_, err := os.Stat(begun)
			return err == nil
		})
		served := make(chan struct{})
		go func() {
			shorts.Wait()
			close(served)
		}()
		select {
		case <-served:
		case <-time.After(startLimit):
			t.Errorf("round %d: a request waits behind the long execution, while the other instance is idle", round)
		}
		if err := os.WriteFile(over, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		shorts.Wait()
		long.Wait()
		for _, file := range []string{begun, over} {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.stop()
}
