package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestPendingUntilBegun queues ten requests behind an executing one. Some are already in the stub's
// ring. A batch must count as pending until the stub begins it, because autoscalers use that
// number.
func TestPendingUntilBegun(t *testing.T) {
	directory := t.TempDir()
	repository := writeFiles(t, map[string]string{
		"single/config.pbtxt":  batchConfig(directory, "", "max_batch_size: 1\n"),
		"single/1/model.py":    batchModel,
		"batched/config.pbtxt": batchConfig(directory, "", ""),
		"batched/1/model.py":   batchModel,
	})
	s := start(t, testkit.Python(t).Path, repository)
	for _, model := range []string{"single", "batched"} {
		var clients sync.WaitGroup
		ask := func(id string) {
			clients.Go(func() {
				body := fmt.Sprintf(`{"id":"%s","inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[0]}]}`, id)
				if status, answer := s.request("POST", "/v2/models/"+model+"/infer", body); status != http.StatusOK {
					t.Errorf("%s: %d %s", id, status, answer)
				}
			})
		}
		ask("hold")
		s.until("the first is executed", func() bool {
			_, err := os.Stat(filepath.Join(directory, model+".hold.begun"))
			return err == nil
		})
		for n := range 10 {
			ask(fmt.Sprint(n))
			s.until("it is inside", func() bool { return pendingOf(s.scrape(), model) == n+1 })
		}
		if err := os.WriteFile(filepath.Join(directory, model+".hold"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		clients.Wait()
		s.until("none is pending", func() bool { return pendingOf(s.scrape(), model) == 0 })
	}
	s.stop()
}
