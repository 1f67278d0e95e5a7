package integration

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestKilledModelsLoseOnlyExecutingRequests repeatedly kills stubs while twelve clients send
// requests, more often than a crash loop would allow. Only requests in a killed stub may fail. All
// others must wait for another stub, even if the model has one instance.
func TestKilledModelsLoseOnlyExecutingRequests(t *testing.T) {
	testkit.Story(t)
	healthy := regexp.MustCompile(`Stub process 'slow_0(_[01])?' is not healthy\.`)
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
				"slow/config.pbtxt": oneFloat + fmt.Sprintf("instance_group [ { count: %d kind: KIND_CPU } ]", instances),
				"slow/1/model.py":   executing(`pass`),
			}))
			stop := make(chan struct{})
			var clients sync.WaitGroup
			var good, failed atomic.Int64
			for range 12 {
				clients.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						status, body, err := s.try("POST", "/v2/models/slow/infer", nil, fmt.Appendf(nil, inferBody, 1))
						switch {
						case err != nil:
							t.Errorf("got error %v", err)
							return
						case status == http.StatusOK:
							good.Add(1)
						default:
							failed.Add(1)
							if !healthy.MatchString(body) {
								t.Errorf("status %d: %s", status, body)
							}
						}
					}
				})
			}
			const kills = 12
			var killed []int
			for range kills {
				so := good.Load()
				var pid int
				// A stub that is killed during startup counts as a failed start. After three of
				// them the instance keeps failing.
				s.until("all processes serve", func() bool {
					serving := s.serving()
					if len(serving) != instances || slices.ContainsFunc(serving, func(pid int) bool { return slices.Contains(killed, pid) }) {
						return false
					}
					pid = serving[len(killed)%instances] // kill the instances in turn
					return good.Load() > so+20
				})
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				killed = append(killed, pid)
			}
			so := good.Load()
			s.until("requests are answered", func() bool { return good.Load() > so+20 })
			close(stop)
			clients.Wait()
			// Besides the executing request, one may be queued in the stub, but not in two stubs.
			if n := failed.Load(); n > 2*kills {
				t.Errorf("%d requests failed, %d were answered; want at most two for each of %d processes that were killed", n, good.Load(), kills)
			}
			if strings.Contains(s.log.String(), "process keeps failing") {
				t.Error("hope was lost of an instance that works")
			}
		})
	}
}

// serving lists the stubs of instances that are ready or busy.
func (s *runningServer) serving() (pids []int) {
	for _, m := range s.status("").Versions {
		for _, in := range m.Instances {
			if in.State == "ready" || in.State == "busy" {
				pids = append(pids, in.PID)
			}
		}
	}
	return pids
}
