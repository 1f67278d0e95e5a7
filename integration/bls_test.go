package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// repositoryOf copies a repository of testdata, because models may write files next to it.
func repositoryOf(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// call runs a test case of a model in testdata/bls and returns its result.
func (s *runningServer) call(model, testCase string) (status int, result string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"inputs":[{"name":"CASE","datatype":"BYTES","shape":[1],"data":[%q]}],"outputs":[{"name":"RESULT"}]}`, testCase)
	status, text := s.request("POST", "/v2/models/"+model+"/infer", body)
	if status != http.StatusOK {
		return status, errorOf(s.t, text)
	}
	var answer struct {
		Outputs []struct{ Data []string }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 1 {
		s.t.Fatalf("%s, case %s: got %s", model, testCase, text)
	}
	return status, answer.Outputs[0].Data[0]
}

// good runs a test case that the model itself verifies.
func (s *runningServer) good(t *testing.T, model, testCase string) {
	t.Helper()
	if status, result := s.call(model, testCase); status != http.StatusOK || result != "good" {
		t.Errorf("%s, case %s: status %d: %s", model, testCase, status, result)
	}
}

var caseDefinition = regexp.MustCompile(`(?m)^    (?:async )?def case_(\w+)\(self\)`)

// casesOf lists the test cases of a model that take no argument.
func casesOf(t *testing.T, repository, model string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, model, "1", "model.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range caseDefinition.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("%s has no cases", model)
	}
	return names
}

// TestModelsCallEachOtherInAllWays runs every kind of BLS request. The models verify the responses.
func TestModelsCallEachOtherInAllWays(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			repository := repositoryOf(t, "bls")
			s := start(t, python.Path, repository)
			for _, model := range []string{"caller", "other_caller"} {
				for _, name := range casesOf(t, repository, model) {
					t.Run(model+"/"+name, func(t *testing.T) {
						if name == "inputs_as_they_are" {
							s.runClient("bls.py")
							return
						}
						s.good(t, model, name)
					})
				}
			}
			t.Run("finalize", func(t *testing.T) {
				s.stop()
				if n := strings.Count(s.log.String(), "caller is finalized as it should be"); n != 3 {
					t.Errorf("%d instances of the caller were finalized without a call of others, want 3", n)
				}
			})
		})
	}
}

// TestBLSWithNamedRegions checks that BLS requests work with named regions too.
func TestBLSWithNamedRegions(t *testing.T) {
	s := start(t, testkit.Python(t).Path, repositoryOf(t, "bls"), "--backend-config=python,shm-region-prefix-name="+regionPrefix)
	for _, name := range []string{"sizes", "private_inputs", "memory_goes_back", "a_thousand"} {
		t.Run(name, func(t *testing.T) { s.good(t, "caller", name) })
	}
}

// TestBLSOfItself checks that a model can call itself as deep as it has instances. One level deeper
// could never finish and must be an error.
func TestBLSOfItself(t *testing.T) {
	s := start(t, testkit.Python(t).Path, repositoryOf(t, "bls"))
	if _, result := s.call("caller", "depth:2"); result != "012" {
		t.Errorf("three instances deep: got %q, want 012", result)
	}
	if _, result := s.call("caller", "depth:3"); !strings.Contains(result, "'caller'") {
		t.Errorf("four deep on three instances: got %q, want an error that names the cycle", result)
	}
	s.good(t, "caller", "sizes")
}

// TestBLSDeaths kills the calling or the called model during a BLS request. The other model must
// survive, and both must serve requests again.
func TestBLSDeaths(t *testing.T) {
	s := start(t, testkit.Python(t).Path, repositoryOf(t, "bls"))
	type answer struct {
		status int
		result string
	}
	for _, victim := range []string{"caller", "patient"} {
		for range 3 {
			mark := filepath.Join(t.TempDir(), "m")
			answers := make(chan answer, 1)
			go func() {
				status, result := s.call("caller", "wait:"+mark)
				answers <- answer{status, result}
			}()
			s.until("executing", func() bool { return exists(mark + ".begun") })
			for _, pid := range s.stubsOf(victim) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			a := <-answers
			switch {
			case victim == "caller" && (a.status != http.StatusInternalServerError || !regexp.MustCompile(`^Stub process 'caller_0_\d' is not healthy\.$`).MatchString(a.result)):
				t.Errorf("the caller was killed: got status %d, %q", a.status, a.result)
			case victim == "patient" && (a.status != http.StatusOK || !regexp.MustCompile(`^error: Stub process 'patient_0_\d' is not healthy\.$`).MatchString(a.result)):
				t.Errorf("the model that was called was killed: got status %d, %q", a.status, a.result)
			}
			if victim == "caller" { // its BLS request in flight is cancelled
				s.until("cancelled", func() bool { return exists(mark + ".cancelled") })
			}
			s.until("well again", func() bool {
				status, result := s.call("caller", "sizes")
				return status == http.StatusOK && result == "good"
			})
		}
	}
}

// TestBLSOuterCancellation disconnects the client of the calling model. The called model must
// receive the cancellation.
func TestBLSOuterCancellation(t *testing.T) {
	s := start(t, testkit.Python(t).Path, repositoryOf(t, "bls"))
	mark := filepath.Join(t.TempDir(), "m")
	s.runClient("bls_cancel.py", mark)
	s.until("cancelled", func() bool { return exists(mark + ".cancelled") })
	s.good(t, "caller", "sizes")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stubsOf lists the stubs of a model's instances.
func (s *runningServer) stubsOf(model string) (pids []int) {
	for _, pid := range s.stubs() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), model+"_0") {
			pids = append(pids, pid)
		}
	}
	return pids
}
