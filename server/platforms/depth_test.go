package platforms_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/platforms"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestJSONNestsToOneDepth checks that each endpoint that reads JSON accepts 100 nested brackets and
// rejects 101.
func TestJSONNestsToOneDepth(t *testing.T) {
	core := servertest.NewCore()
	parts := server.Parts{Core: core, Logging: &servertest.Log[server.LogSettings]{}}
	base := testkit.WriteFiles(t, t.TempDir(), map[string]string{"id_int32/model/config.pbtxt": ""})
	local := rest.Config{}
	local.Address = "127.0.0.1"
	for _, kind := range []string{"infer", "generate", "generate_stream"} {
		front, err := platforms.NewSageMaker(platforms.SageMakerConfig{
			REST: local, Repositories: &platforms.FakeRepositories{Registered: map[string]string{}}, ModelDirectory: base, DefaultModel: "id_int32", InferenceType: kind,
		}, parts, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		_, stop := servertest.Run(t, front)
		url := "http://" + front.Addr().String()
		if got := post(t, url+"/models", `{"model_name":"id_int32","url":"`+base+`/id_int32/model"}`); got != "200 " {
			t.Fatalf("load: got %s", got)
		}
		checkDepth(t, url+"/invocations")
		checkDepth(t, url+"/models")
		checkDepth(t, url+"/models/id_int32/invoke")
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	index, err := core.Index(true)
	if err != nil {
		t.Fatal(err)
	}
	index[0].Name = "id_int32"
	core.Listed = index
	vertex, err := platforms.NewVertex(platforms.VertexConfig{REST: local, PredictRoute: "/predict", HealthRoute: "/health"}, parts, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	_, stop := servertest.Run(t, vertex)
	checkDepth(t, "http://"+vertex.Addr().String()+"/predict")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func checkDepth(t *testing.T, url string) {
	t.Helper()
	const tooDeep = "JSON nesting depth exceeds maximum allowed limit (100)"
	body := func(depth int) string {
		return `{"x":` + strings.Repeat("[", depth-1) + "1" + strings.Repeat("]", depth-1) + "}"
	}
	if got := post(t, url, body(100)); strings.Contains(got, tooDeep) {
		t.Errorf("%s at depth 100: got %.300s, want it read", url, got)
	}
	if got := post(t, url, body(101)); !strings.HasPrefix(got, "400 ") || !strings.Contains(got, tooDeep) {
		t.Errorf("%s at depth 101: got %.300s, want it refused", url, got)
	}
}

// post returns the status and the body of a reply.
func post(t *testing.T, url, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: servertest.Patience}
	reply, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(reply.Status)[0] + " " + string(text)
}
