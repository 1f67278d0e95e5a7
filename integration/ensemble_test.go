package integration

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// loadAll loads models one after another.
func (s *runningServer) loadAll(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if status, body := s.request("POST", "/v2/repository/models/"+name+"/load", ""); status != http.StatusOK {
			s.t.Fatalf("load %s: status %d: %s", name, status, body)
		}
	}
}

// ensembleStories are requests and their expected replies.
var ensembleStories = []struct{ ask, want string }{
	{"http e_two A=[3]", "B[1]=3 C[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"grpc e_two A=[3]", "B[1]=3 C[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_two A=[3]", "B[1]=3 C[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_two A=[3] outputs=C", "C[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_two Q=[3]", "error unexpected inference input 'Q' for model 'e_two'"},
	{"http e_opt A=[3];O=[4]", "B[1]=3 C[1]=4 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_opt A=[3]", "B[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_required A=[3] request_id=me", "error in ensemble 'e_required', [request id: me] expected 2 inputs but got 1 inputs for model 'id2'. Got input(s) ['IN0'], but missing required input(s) ['IN1']. Please provide all required input(s)."},
	{"http e_choice A=[0]", " ()"},
	{"http e_choice A=[1]", "B[1]=1 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_choice A=[2]", "B[1]=2 C[1]=2 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_choice A=[3]", "error in ensemble 'e_choice', bad luck"},
	{"grpc e_choice A=[3]", "error in ensemble 'e_choice', bad luck"},
	{"stream e_choice A=[3]", "error in ensemble 'e_choice', bad luck"},
	{"http e_choice A=[4]", "B[0]= C[1]=4 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_choice A=[4] outputs=B", "B[0]= ()"},
	{"http e_choice A=[5]", "error in ensemble 'e_choice', Failed to process the request(s) for model 'choice_0', message: RuntimeError: boom"},
	{"http e_then A=[1]", "error in ensemble 'e_then', [request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'id'. Got input(s) [], but missing required input(s) ['IN0']. Please provide all required input(s)."},
	{"http e_then A=[6]", "C[1]=6 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_nested A=[3]", "M[1]=3 N[1]=3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_seen A=[1] request_id=me sequence_id=9 sequence_start=True timeout=1234567 parameters=mine:x", `B[1]=me|9|1|1234567|{"mine":"x"}|OUT0|IN0[1] (sequence_id=9 sequence_start=True sequence_end=False)`},
	{"grpc e_seen A=[1] sequence_id=nine sequence_end=True", "B[1]=|nine|2|0|{}|OUT0|IN0[1] (sequence_id=nine sequence_start=False sequence_end=True)"},
	{"http e_to_batch A=[1,2,3]", "B[1,3]=1,2,3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_from_batch A=[[1,2,3]]", "B[3]=1,2,3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_from_batch A=[[1],[2],[3]]", "B[3,1]=1,2,3 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_from_batch A=[[1],[2],[3],[4],[5]]", "error in ensemble 'e_from_batch', [request id: <id_unknown>] inference request batch-size must be <= 4 for 'idb4'"},
	{"http e_batch A=[[1,2,3]]", "B[1,1]=|0|0|0|{}|OUT0|IN0[3] (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"http e_batch A=[[1],[2],[3]]", "error in ensemble 'e_batch', [request id: <id_unknown>] unexpected shape for input 'IN0' for model 'seen'. Expected [-1], got [3,1]. "},
	{"stream e_rep A=[0]", "nothing"},
	{"stream e_rep A=[2]", "B[1]=0 C[1]=0 (sequence_id=0 sequence_start=False sequence_end=False) / B[1]=1 C[1]=10 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_rep A=[12]", "B[1]=12 C[1]=120 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_rep A=[11]", "error in ensemble 'e_rep', mid"},
	{"stream e_rep A=[2] outputs=C", "C[1]=0 (sequence_id=0 sequence_start=False sequence_end=False) / C[1]=10 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_rep_rep A=[3]", "B[1]=0 (sequence_id=0 sequence_start=False sequence_end=False) / B[1]=0 (sequence_id=0 sequence_start=False sequence_end=False) / B[1]=1 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_nested_rep A=[2]", "N[1]=0 (sequence_id=0 sequence_start=False sequence_end=False) / N[1]=1 (sequence_id=0 sequence_start=False sequence_end=False)"},
	{"stream e_nested_rep A=[11]", "error in ensemble 'e_nested_rep', in ensemble 'e_rep', mid"},
	{"http e_rep A=[1]", "error HTTP end point doesn't support models with decoupled transaction policy"},
}

// storyEnsembles adds the ensembles of the stories and returns their names in an order in which
// they can be loaded.
func storyEnsembles(files map[string]string) (names []string) {
	add := func(name, inputs, outputs, more string, steps ...string) {
		ensembleFiles(files, name, inputs, outputs, more, steps...)
		names = append(names, name)
	}
	const vector, rows = ":INT32[-1]", ":INT32[-1,-1]"
	add("e_two", "A", "B C", "", "id(IN0=A)->OUT0=B", "id(IN0=A)->OUT0=C")
	add("e_opt", "A O:INT32[1]?", "B C", "", "idopt(IN0=A,IN1=O)->OUT0=B,OUT1=C")
	add("e_required", "A O:INT32[1]?", "B C", "", "id2(IN0=A,IN1=O)->OUT0=B,OUT1=C")
	add("e_choice", "A", "B"+vector+" C", "", "choice(IN0=A)->OUT0=B,OUT1=C")
	add("e_then", "A", "B"+vector+" C", "", "choice(IN0=A)->OUT0=B,OUT1=X", "id(IN0=X)->OUT0=C")
	add("e_nested", "A", "N M", "", "e_two(A=A)->B=N,C=M")
	add("e_seen", "A", "B:STRING[1]", "", "id(IN0=A)->OUT0=X", "seen(IN0=X)->OUT0=B")
	add("e_to_batch", "A"+vector, "B"+rows, "", "idv(IN0=A)->OUT0=X", "idb4(IN0=X)->OUT0=B")
	add("e_from_batch", "A"+rows, "B"+vector, "", "idb4(IN0=A)->OUT0=B")
	add("e_batch", "A"+vector, "B:STRING[1]", "|max_batch_size: 4\n", "idb4(IN0=A)->OUT0=X", "seen(IN0=X)->OUT0=B")
	add("e_rep", "A", "B C", "", "rep(IN0=A)->OUT0=X,OUT1=C", "id(IN0=X)->OUT0=B")
	add("e_rep_rep", "A", "B", "", "rep(IN0=A)->OUT0=X", "rep2(IN0=X)->OUT0=B")
	add("e_nested_rep", "A", "N", "", "e_rep(A=A)->B=Z", "id(IN0=Z)->OUT0=N")
	return names
}

// tellStories sends the requests of the stories and returns the replies by request.
func (s *runningServer) tellStories() map[string]string {
	s.t.Helper()
	var asks []string
	for _, story := range ensembleStories {
		asks = append(asks, story.ask)
	}
	return s.askAll(asks...)
}

// askAll sends requests and returns the replies by request.
func (s *runningServer) askAll(asks ...string) map[string]string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "stories")
	if err := os.WriteFile(file, []byte(strings.Join(asks, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	output := s.clientOutput("ensembles.py", file)
	told := make(map[string]string)
	for _, line := range strings.Split(strings.TrimSuffix(output, "\n"), "\n") {
		ask, answer, _ := strings.Cut(line, " -> ")
		told[ask] = answer
	}
	return told
}

func TestEnsemblesAnswerAsTheirStepsDo(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			files, models := stepModels()
			ensembles := storyEnsembles(files)
			s := start(t, python.Path, writeFiles(t, files), "--model-control-mode=explicit")
			s.loadAll(append(models, ensembles...)...)
			told := s.tellStories()
			for _, story := range ensembleStories {
				if got := told[story.ask]; got != story.want {
					t.Errorf("%s\n got %s\nwant %s", story.ask, got, story.want)
				}
			}
		})
	}
}

// TestEnsemblesSameAsTriton sends the stories' requests to a real Triton and expects the same
// replies.
func TestEnsemblesSameAsTriton(t *testing.T) {
	triton := yardstick(t)
	files, _ := stepModels()
	storyEnsembles(files)
	told := startTriton(t, triton, writeFiles(t, files), "--exit-on-error=false").tellStories()
	for _, story := range ensembleStories {
		if got := told[story.ask]; got != story.want {
			t.Errorf("%s\nTriton says %s\n     want %s", story.ask, got, story.want)
		}
	}
}

// brokenEnsembles adds ensembles that cannot be loaded, except for e_good, and returns their names.
func brokenEnsembles(files map[string]string) (names []string) {
	for name, of := range map[string][]string{
		"e_batch":      {"A", "B", "|max_batch_size: 8\n", "idb4(IN0=A)->OUT0=B"},
		"e_no_input":   {"A", "B", "", "id(IN0=A,NOPE=A)->OUT0=B"},
		"e_no_output":  {"A", "B", "", "id(IN0=A)->NOPE=B"},
		"e_unmapped":   {"A", "B", "", "id2(IN0=A)->OUT0=B"},
		"e_type":       {"A:FP32[1]", "B", "", "id(IN0=A)->OUT0=B"},
		"e_type_out":   {"A", "B:FP32[1]", "", "id(IN0=A)->OUT0=B"},
		"e_type_mid":   {"A", "B:FP32[1]", "", "idf(IN0=X)->OUT0=B", "id(IN0=A)->OUT0=X"},
		"e_shape":      {"A:INT32[4]", "B", "", "id(IN0=A)->OUT0=B"},
		"e_shape_mid":  {"A", "B:INT32[4]", "", "idb8(IN0=A)->OUT0=X", "id4(IN0=X)->OUT0=B"},
		"e_reshape":    {"A", "B:INT32[1][1,1]", "", "id(IN0=A)->OUT0=B"},
		"e_two_reps":   {"A", "B", "", "rep(IN0=A)->OUT0=X", "rep2(IN0=A)->OUT0=Y", "id2(IN0=X,IN1=Y)->OUT0=B"},
		"e_rep_input":  {"A", "B", "", "rep(IN0=A)->OUT0=X", "id2(IN0=X,IN1=A)->OUT0=B"},
		"e_rep_output": {"A", "B C", "", "rep(IN0=A)->OUT0=B", "id(IN0=A)->OUT0=C"},
		"e_cached":     {"A", "B", "|response_cache { enable: true }\n", "rep(IN0=A)->OUT0=B"},
		"e_good":       {"A", "A B", "|model_transaction_policy { decoupled: true }\n", "id2(IN0=A,IN1=A)->OUT0=B"},
	} {
		ensembleFiles(files, name, of[0], of[1], of[2], of[3:]...)
		names = append(names, name)
	}
	return names
}

// TestBrokenEnsemblesSameAsTriton checks that both servers report the same errors for ensembles
// that do not fit their models, and the same config of a correct ensemble.
func TestBrokenEnsemblesSameAsTriton(t *testing.T) {
	triton := yardstick(t)
	files, models := stepModels()
	ensembles := brokenEnsembles(files)
	repository := writeFiles(t, files)
	ours := start(t, testkit.Python(t).Path, repository, "--model-control-mode=explicit")
	theirs := startTriton(t, triton, repository, "--model-control-mode=explicit")
	ours.loadAll(models...)
	for _, name := range ensembles {
		path := "/v2/repository/models/" + name + "/load"
		status, got := ours.request("POST", path, "")
		wantStatus, want := theirs.request("POST", path, "")
		if status != wantStatus || got != want {
			t.Errorf("load %s: got %d %s, want %d %s", name, status, got, wantStatus, want)
		}
	}
	_, got := ours.request("GET", "/v2/models/e_good/config", "")
	_, want := theirs.request("GET", "/v2/models/e_good/config", "")
	var config, wanted map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got), &config); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	for key, value := range wanted {
		if key != "ensemble_scheduling" && string(config[key]) != string(value) { // Nereid's config has a newer field in it
			t.Errorf("config of e_good: %s is %s, want %s", key, config[key], value)
		}
	}
}

// TestEnsembleStepsChooseTheSequence checks that a model can set the sequence of its response.
func TestEnsembleStepsChooseTheSequence(t *testing.T) {
	files, models := stepModels()
	modelFiles(files, "belongs", "IN0", "OUT0", "", belongs)
	ensembleFiles(files, "e_belongs", "A", "B:STRING[1]", "", "belongs(IN0=A)->OUT0=X", "seen(IN0=X)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll(append(models, "belongs", "e_belongs")...)
	for n, want := range []string{
		`"sequence_id":77,"sequence_start":true,"sequence_end":false},…|77|1|`,
		`"sequence_id":5,"sequence_start":false,"sequence_end":false},…|5|0|`,
		`"sequence_id":"five","sequence_start":true,"sequence_end":false},…|five|1|`,
		`"sequence_id":77,"sequence_start":false,"sequence_end":true},…|77|2|`,
		`in ensemble 'e_belongs', expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING`,
		`in ensemble 'e_belongs', expect parameter 'sequence_start' to be TRITONSERVER_PARAMETER_BOOL`,
		`"sequence_id":77,"sequence_start":true,"sequence_end":false},…|77|1|`,
	} {
		_, got := s.request("POST", "/v2/models/e_belongs/infer", fmt.Sprintf(
			`{"parameters":{"sequence_id":77,"sequence_start":true},"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[%d]}]}`, n))
		for _, part := range strings.Split(want, "…") {
			if !strings.Contains(got, part) {
				t.Errorf("choice %d: got %s, want %s in it", n, got, part)
			}
		}
	}
}

// TestEnsembleStepsAreBatched checks that the steps of several requests are batched as the config
// of the step's model says.
func TestEnsembleStepsAreBatched(t *testing.T) {
	files := make(map[string]string)
	const at = 6
	modelFiles(files, "count", "IN0", "OUT0", fmt.Sprintf("max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ %d ] max_queue_delay_microseconds: 20000000 }\n", at), counts)
	ensembleFiles(files, "e_count", "A", "B", "|max_batch_size: 8\n", "count(IN0=A)->OUT0=X", "count(IN0=X)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll("count", "e_count")
	var asking sync.WaitGroup
	answers := make([]string, at)
	for i := range at {
		asking.Go(func() {
			_, answers[i] = s.request("POST", "/v2/models/e_count/infer", `{"inputs":[{"name":"A","datatype":"INT32","shape":[1,1],"data":[1]}]}`)
		})
	}
	asking.Wait()
	for _, answer := range answers {
		if want := fmt.Sprintf(`"data":[%d]`, at); !strings.Contains(answer, want) {
			t.Errorf("got %s, want %s in it: so many requests are executed together", answer, want)
		}
	}
	_, stats := s.request("GET", "/v2/models/count/stats", "")
	if !strings.Contains(stats, `"inference_count":12,"execution_count":2`) {
		t.Errorf("12 requests were not executed by twos of 6: %s", stats)
	}
}

// TestEnsembleStreamStaysWholeAndInOrder checks that a stream that is longer than the ensemble's
// in-flight limit stays complete and in order.
func TestEnsembleStreamStaysWholeAndInOrder(t *testing.T) {
	files, models := stepModels()
	ensembleFiles(files, "e_rep", "A", "B C", "", "rep(IN0=A)->OUT0=X,OUT1=C", "id(IN0=X)->OUT0=B")
	ensembleFiles(files, "e_rep_rep", "A", "B", "", "rep(IN0=A)->OUT0=X", "rep(IN0=X)->OUT0=Y", "rep2(IN0=Y)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll(append(models, "e_rep", "e_rep_rep")...)
	const long, twice = "stream e_rep A=[700]", "stream e_rep_rep A=[10]"
	told := s.askAll(long, twice)
	var want []string
	for i := range 700 {
		want = append(want, fmt.Sprintf("B[1]=%d C[1]=%d (sequence_id=0 sequence_start=False sequence_end=False)", i, 10*i))
	}
	if got := told[long]; got != strings.Join(want, " / ") {
		t.Errorf("a stream of 700 responses: got %.500s …", got)
	}
	// The count is the sum of 0 + … + n-1 over the numbers n of the previous stream.
	if got, want := strings.Count(told[twice], "B[1]="), 120; got != want {
		t.Errorf("a stream of streams, twice of one model: got %d responses, want %d", got, want)
	}
}

// TestModelsCallEnsemblesAroundThem checks that a model in an ensemble can call another ensemble. A
// call of its own ensemble must be an error if it needs an instance that waits for it.
func TestModelsCallEnsemblesAroundThem(t *testing.T) {
	files, models := stepModels()
	modelFiles(files, "asks", "IN0", "OUT0", `parameters { key: "callee" value { string_value: "e_circle" } }`, asksEnsemble)
	modelFiles(files, "asks_other", "IN0", "OUT0", `parameters { key: "callee" value { string_value: "e_plain" } }`, asksEnsemble)
	ensembleFiles(files, "e_plain", "A", "B", "", "id(IN0=A)->OUT0=B")
	ensembleFiles(files, "e_circle", "A", "B", "", "id(IN0=A)->OUT0=X", "asks(IN0=X)->OUT0=B")
	ensembleFiles(files, "e_other", "A", "B", "", "id(IN0=A)->OUT0=X", "asks_other(IN0=X)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll(append(models, "asks", "asks_other", "e_plain", "e_circle", "e_other")...)
	body := `{"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[7]}]}`
	if status, got := s.request("POST", "/v2/models/e_other/infer", body); status != http.StatusOK || !strings.Contains(got, `"data":[7]`) {
		t.Errorf("an ensemble inside another's step: %d %s", status, got)
	}
	want := "in ensemble 'e_circle', in ensemble 'e_circle', Model 'asks' cannot be called: every instance of it waits for this call (asks → asks)"
	if status, got := s.request("POST", "/v2/models/e_circle/infer", body); status == http.StatusOK || !strings.Contains(got, want) {
		t.Errorf("an ensemble that waits for itself: got %d %s, want %s in it", status, got, want)
	}
}

// TestEnsembleInflightBoundsASlowStep checks that max_inflight_requests limits the requests of a
// step, although the step's model could execute more.
func TestEnsembleInflightBoundsASlowStep(t *testing.T) {
	files := make(map[string]string)
	modelFiles(files, "time", "IN0", "OUT0:FP64[2]", "instance_group { count: 3 kind: KIND_CPU }\n", takesTime)
	ensembleFiles(files, "e_time", "A", "B:FP64[2]", "max_inflight_requests: 1\n|", "time(IN0=A)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll("time", "e_time")
	var asking sync.WaitGroup
	spans := make([][]float64, 4)
	for i := range spans {
		asking.Go(func() {
			_, answer := s.request("POST", "/v2/models/e_time/infer", oneAsked)
			var parsed struct{ Outputs []struct{ Data []float64 } }
			if err := json.Unmarshal([]byte(answer), &parsed); err == nil && len(parsed.Outputs) == 1 {
				spans[i] = parsed.Outputs[0].Data
			}
		})
	}
	asking.Wait()
	for i, a := range spans {
		for _, b := range spans[:i] {
			if len(a) != 2 || len(b) != 2 || a[0] < b[1] && b[0] < a[1] {
				t.Errorf("executions %v and %v are at the same time", a, b)
			}
		}
	}
	if want := "Ensemble model 'e_time' configured with max_inflight_requests: 1"; !s.prints(want) {
		t.Errorf("the log does not say %q", want)
	}
}

// TestEnsembleEndsWhenItsClientLeaves checks that no further step starts after the client has
// disconnected.
func TestEnsembleEndsWhenItsClientLeaves(t *testing.T) {
	files, models := stepModels()
	directory := t.TempDir()
	modelFiles(files, "waits", "IN0", "OUT0", "", strings.ReplaceAll(waitsForLeave, "DIRECTORY", strconv.Quote(directory)))
	modelFiles(files, "after", "IN0", "OUT0", "", echoes)
	ensembleFiles(files, "e_waits", "A", "B", "", "waits(IN0=A)->OUT0=X", "after(IN0=X)->OUT0=B")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit")
	s.loadAll(append(models, "waits", "after", "e_waits")...)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1) // receives one value
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", fmt.Sprintf("http://127.0.0.1:%d/v2/models/e_waits/infer", s.http), strings.NewReader(oneAsked))
		if err == nil {
			var response *http.Response
			if response, err = client.Do(req); err == nil {
				response.Body.Close()
			}
		}
		gone <- err
	}()
	s.comes(directory, "begun")
	leave()
	if err := <-gone; err == nil {
		t.Error("the client got an answer although it had gone")
	}
	s.until("done with it", func() bool {
		_, stats := s.request("GET", "/v2/models/e_waits/stats", "")
		return strings.Contains(stats, `"fail":{"count":2,`)
	})
	if _, stats := s.request("GET", "/v2/models/after/stats", ""); !strings.Contains(stats, `"inference_count":0,"execution_count":0`) {
		t.Errorf("the second step was executed: %s", stats)
	}
}

// clientOutput runs a client script and returns its output.
func (s *runningServer) clientOutput(script string, arguments ...string) string {
	s.t.Helper()
	arguments = append([]string{runScript, filepath.Join("testdata", script), fmt.Sprintf("127.0.0.1:%d", s.http), fmt.Sprintf("127.0.0.1:%d", s.grpc)}, arguments...)
	output, err := exec.Command(clientPython(s.t), arguments...).Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, output)
	}
	return string(output)
}

// TestResponsesThatWaitForASlowStepAreCharged sends responses faster than the next step executes.
// The ensemble calls the sending model twice, so it has no in-flight limit. Pending responses must
// be charged to that model until its request fails, and other models must continue.
func TestResponsesThatWaitForASlowStepAreCharged(t *testing.T) {
	testkit.Story(t)
	open := filepath.Join(t.TempDir(), "open")
	files := map[string]string{}
	modelFiles(files, "many", "N", "OUT:INT32[500]", "model_transaction_policy { decoupled: true }\n", sendingHead+`
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.run, args=(request.get_response_sender(), number(request))).start()

    def run(self, sender, n):
        while n and not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(500, np.int32))]))
        sender.send(flags=FINAL)
`)
	modelFiles(files, "slow", "IN:INT32[500]", "OUT", "", fmt.Sprintf(sendingHead+`
    def execute(self, requests):
        while not os.path.exists(%q):
            time.sleep(0.01)
        return [answer(0) for _ in requests]
`, open))
	modelFiles(files, "other", "N", "OUT", "", sendingHead+`
    def execute(self, requests):
        return [answer(number(request)) for request in requests]
`)
	ensembleFiles(files, "chain", "IN", "LAST:INT32[500]", "", "many(N=IN)->OUT=SENT", "slow(IN=SENT)->OUT=DONE", "many(N=DONE)->OUT=LAST")
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--request-memory-byte-size=134217728", "--model-max-memory-share=10")
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	stream, err := dialGRPC(t, s).ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&kserve.ModelInferRequest{
		ModelName:        "chain",
		Inputs:           []*kserve.ModelInferRequest_InferInputTensor{{Name: "IN", Datatype: "INT32", Shape: []int64{1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, 1)},
	}); err != nil {
		t.Fatal(err)
	}
	kept, limit := `nereid_model_memory_bytes{kind="frames",model="many",version="1"}`, `nereid_model_memory_limit_bytes{kind="frames",model="many",version="1"}`
	s.until("keeping responses", func() bool {
		bytes, some := s.figureOf(kept)
		return some && bytes > s.figure(limit)/2
	})
	if status, body := s.request("POST", "/v2/models/other/infer", `{"inputs":[{"name":"N","shape":[1],"datatype":"INT32","data":[7]}]}`); status != http.StatusOK {
		t.Errorf("the other model: got status %d and %s", status, body)
	}
	if got, most := testkit.ResidentBytes(t, s.cmd.Process.Pid), int64(192<<20); got > most {
		t.Errorf("the server has %d bytes, want at most %d", got, most)
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	for err == nil && r.GetErrorMessage() == "" {
		r, err = stream.Recv()
	}
	if want := `a request of model "many" version 1 holds `; err != nil || !strings.Contains(r.GetErrorMessage(), want) {
		t.Errorf("got the response %v and error %v, want an error with %q", r, err, want)
	}
	s.until("rid of all responses", func() bool {
		_, some := s.figureOf(kept)
		return !some
	})
}
