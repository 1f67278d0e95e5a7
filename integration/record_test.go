package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/recording"
)

// TestRecordInTheRepositoryIsRefused: a folder there would be a model.
func TestRecordInTheRepositoryIsRefused(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")})
	s := launch(t, testkit.Python(t).Path, repository, "--record="+repository+"/records")
	if status := s.wait(startLimit); status != 1 || !strings.Contains(s.log.String(), "lies in the model repository") {
		t.Errorf("got status %d and\n%s", status, s.log.String())
	}
}

// TestRecordedRequestIsABody sends head and tensors of a recorded request again, as docs/record.md says that they are a body.
func TestRecordedRequestIsABody(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": checkedConfig, "m/1/model.py": checking("B")}), "--record="+records)
	status, first := s.request("POST", "/v2/models/m/infer", `{"id":"7","inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[1.5,2]}]}`)
	if status != http.StatusOK {
		t.Fatalf("got %d %s", status, first)
	}
	var files []string
	s.until("a record is written", func() bool {
		var err error
		files, err = recording.Files(records)
		return err == nil && len(files) == 1
	})
	r, err := recording.Open(files[0])
	if err != nil || len(r.Answers) != 1 || string(r.Answers[0].Tensors[0].Data) != string(r.Request.Tensors[0].Data) || r.Request.ID != "7" {
		t.Fatalf("got %+v, %v", r, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	head := strings.Index(rest, "}]}") + len("}]}")
	q, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", s.http), strings.NewReader(rest[:head+8]))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Inference-Header-Content-Length", strconv.Itoa(head))
	reply, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("got status %s for %q", reply.Status, rest[:head])
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
}
