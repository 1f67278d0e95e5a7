package integration

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestEnvCommandBesideAServer lists, verifies and prunes the cache of a running server. The
// environment of a loaded model must stay until the model is unloaded.
func TestEnvCommandBesideAServer(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "m/1/model.py": tellingModel,
	})
	environments := filepath.Join(t.TempDir(), "environments")
	pack(t, root+"/m/env.tar.gz", smallEnvironment(t, "one"))
	s := start(t, testkit.Python(t).Path, root, cacheFlag(environments), "--model-control-mode=explicit", "--load-model=m")
	directory := s.mustAsk("m").Environment["VIRTUAL_ENV"]

	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Directory, Source string
		InUse             bool `json:"in_use"`
		Complete          bool
		Damage            []string
	}
	env := func(arguments ...string) (entries []entry) {
		t.Helper()
		command := exec.Command(binary, append(append([]string{"env"}, arguments...), "--json", "--env-cache-directory", environments)...)
		output, err := command.Output()
		if err != nil {
			t.Fatalf("nereid env %v: %v: %s", arguments, err, output)
		}
		if err := json.Unmarshal(output, &entries); err != nil {
			t.Fatalf("nereid env %v: %v: %s", arguments, err, output)
		}
		return entries
	}
	if got := env("list"); len(got) != 1 || got[0].Directory != directory || got[0].Source != root+"/m/env.tar.gz" || !got[0].InUse || !got[0].Complete {
		t.Errorf("list: got %+v, want %s in use", got, directory)
	}
	if got := env("verify", "--deep"); len(got) != 1 || len(got[0].Damage) != 0 {
		t.Errorf("verify of what a model has run in: got %+v, want no damage", got)
	}
	if got := env("prune", "--all"); len(got) != 0 {
		t.Errorf("prune while a model runs: got %+v removed, want nothing", got)
	}
	s.mustAsk("m")
	if status, body := s.request("POST", "/v2/repository/models/m/unload", ""); status != http.StatusOK {
		t.Fatalf("unload: status %d: %s", status, body)
	}
	var removed []entry
	s.until("unloaded", func() bool { removed = env("prune", "--all"); return len(removed) > 0 })
	if removed[0].Directory != directory || len(env("list")) != 0 {
		t.Errorf("prune after the unload: got %+v, want %s removed", removed, directory)
	}
	s.mustLoad("m")
	if got := s.marker("m"); got != "one" {
		t.Errorf("the model that was loaded again is in the environment %q, want one", got)
	}
}
