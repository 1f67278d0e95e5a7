package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPluginsThatFailAtTheirEnds makes Ready and each Close panic or exit its goroutine. The log
// must name the hook, and a model whose Ready fails must not be ready. Each model must unload
// normally, and its process must not be lost or killed.
func TestPluginsThatFailAtTheirEnds(t *testing.T) {
	backends := t.TempDir()
	files := make(map[string]string)
	arguments := []string{"--backend-directory=" + backends, "--model-control-mode=explicit"}
	said := make(map[string]string)
	for _, hook := range []string{"Ready", "Instance.Close", "Model.Close", "Backend.Close"} {
		for how, says := range map[string]string{"panic": "panicked", "exit": "ended its goroutine"} {
			name := how + strings.ReplaceAll(hook, ".", "")
			said[name] = fmt.Sprintf("backend '%s', model '%s', instance '%s_0': %s %s", name, name, name, hook, says)
			switch hook {
			case "Model.Close":
				said[name] = fmt.Sprintf("backend '%s', model '%s': %s %s", name, name, hook, says)
			case "Backend.Close":
				said[name] = fmt.Sprintf("backend '%s': Close %s", name, says)
			}
			plugin(t, filepath.Join(backends, name, "nereid_"+name))
			files[name+"/config.pbtxt"], files[name+"/1/none"] = strings.Replace(manyConfig(""), `"many"`, `"`+name+`"`, 1), ""
			arguments = append(arguments, "--backend-config="+name+","+how+"="+hook)
		}
	}
	s := start(t, "", writeFiles(t, files), arguments...)
	for name, says := range said {
		if status, body := s.load(name); status != http.StatusOK {
			t.Fatalf("load %s: status %d: %s", name, status, body)
		}
		s.wantNumber(name, 1, 2)
		status, _, err := s.try("GET", "/v2/models/"+name+"/ready", nil, nil)
		if ready := err == nil && status == http.StatusOK; ready == strings.HasSuffix(name, "Ready") {
			t.Errorf("%s: ready is %v", name, ready)
		}
		if status, body := s.request("POST", "/v2/repository/models/"+name+"/unload", ""); status != http.StatusOK {
			t.Errorf("unload %s: status %d: %s", name, status, body)
		}
		s.until("unloaded", func() bool { return s.index()[name].State == "UNAVAILABLE" && s.index()[name].Reason == "unloaded" })
		if !s.prints(says) {
			t.Errorf("the log does not have %q", says)
		}
	}
	s.until("rid of all processes", func() bool { return len(s.plugins()) == 0 })
	for _, never := range []string{"process lost", "killed"} {
		if strings.Contains(s.log.String(), never) {
			t.Errorf("the log has %q", never)
		}
	}
}

// TestPluginsThatNeverClose checks that a plugin that ignores signals and hangs in Close is killed
// at the time limit, and that nothing is left over.
func TestPluginsThatNeverClose(t *testing.T) {
	backends := t.TempDir()
	plugin(t, filepath.Join(backends, "many", "nereid_many"))
	s := start(t, "", writeFiles(t, map[string]string{
		"m/config.pbtxt": manyConfig("never close"), "m/1/none": "", "good/config.pbtxt": manyConfig(""), "good/1/none": "",
	}), "--backend-directory="+backends, "--model-control-mode=explicit", "--load-model=*", "--backend-config=many,finalize-timeout-seconds=1")
	s.wantNumber("m", 1, 2)
	if status, body := s.request("POST", "/v2/repository/models/m/unload", ""); status != http.StatusOK {
		t.Fatalf("unload: status %d: %s", status, body)
	}
	s.until("unloaded", func() bool { return s.index()["m"].State == "UNAVAILABLE" && s.index()["m"].Reason == "unloaded" })
	if !s.prints("finalize did not return in time, killing the process") {
		t.Error("the log does not say that the process was killed")
	}
	s.until("rid of the process", func() bool { return len(s.plugins()) == 1 })
	s.wantNumber("good", 1, 2)
}

// plugins lists the pids of plugin processes in ascending order.
func (s *runningServer) plugins() (pids []int) {
	for _, pid := range s.descendants() {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), "/nereid_") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// TestAPluginIsKilledAndReplaced kills a plugin during a request, and replaces its program while
// the server polls. A new program must take over without losing a request. A broken one must leave
// the old version serving.
func TestAPluginIsKilledAndReplaced(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": strings.Replace(manyConfig("pid"), `"many"`, `"near"`, 1), "m/1/none": "",
		"hangs/config.pbtxt": strings.Replace(manyConfig("hang"), `"many"`, `"near"`, 1), "hangs/1/none": "",
	})
	plugin(t, filepath.Join(root, "m", "nereid_near"), filepath.Join(root, "hangs", "nereid_near"))
	s := start(t, "", root, "--model-control-mode=poll", "--repository-poll-secs=1")
	pidOf := func(model string) int {
		for _, pid := range s.plugins() {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), "/"+model+"/") {
				return pid
			}
		}
		return 0
	}
	answer := make(chan string, 1)
	go func() { answer <- s.tryNumber("hangs", 13) }()
	if !s.prints("hangs hangs\n") {
		t.Fatal("the model does not execute the request")
	}
	_ = unix.Kill(pidOf("hangs"), unix.SIGKILL)
	if got, want := <-answer, `500 {"error":"the process of backend 'near' for instance 'hangs_0' has ended unexpectedly"}`; got != want {
		t.Errorf("got error %q, want %q", got, want)
	}
	s.wantNumber("hangs", 1, 2)

	_, first, _ := s.number("m", 1)
	plugin(t, filepath.Join(root, "m", "nereid_near"))
	s.until("served by the new program", func() bool {
		status, now, failure := s.number("m", 1)
		if status != http.StatusOK {
			t.Fatalf("while the program is replaced: %d %s", status, failure)
		}
		return now != first
	})
	_, second, _ := s.number("m", 1)
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil { //nolint:gosec // it should be executed
		t.Fatal(err)
	}
	if err := os.Rename(broken, filepath.Join(root, "m", "nereid_near")); err != nil {
		t.Fatal(err)
	}
	if !s.prints(`begins with \"no p\" and is not a program`) && !s.prints(`begins with "no p" and is not a program`) {
		t.Error("the log does not say what is wrong with the program")
	}
	s.wantNumber("m", 1, second)
}
