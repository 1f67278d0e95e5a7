package page_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/page"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
	"github.com/nereid-serving/nereid/server/status"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// evil is markup that is used as a name or a text.
const evil = `<script>alert("x")</script>`

// noFiles is a repository whose configurations contain markup.
type noFiles struct{}

func (noFiles) ConfigText(model string, _ int64) (string, []byte, error) {
	if model == "classes" {
		return "models/classes/config.pbtxt", nil, nil
	}
	return "models/" + model + "/config.pbtxt", []byte("# " + evil + "\nname: \"m\"\n"), nil
}

// site is a page over fakes.
type site struct {
	t      *testing.T
	core   *servertest.Core
	url    string
	token  string
	client http.Client
}

// start runs a page until the test ends. All memory must then have been released.
func start(t *testing.T, cfg page.Config, core *servertest.Core) *site {
	t.Helper()
	for name := range core.Models {
		core.Listed = append(core.Listed, &kserve.RepositoryIndexResponse_ModelIndex{Name: name, Version: "1", State: "READY"})
	}
	core.Listed = append(core.Listed,
		&kserve.RepositoryIndexResponse_ModelIndex{Name: "broken", Version: "1", State: "UNAVAILABLE", Reason: "Internal: " + evil + "\n\nAt:\n  model.py(3)"},
		&kserve.RepositoryIndexResponse_ModelIndex{Name: "gone", Version: "1", State: "UNAVAILABLE", Reason: "unloaded"},
		&kserve.RepositoryIndexResponse_ModelIndex{Name: "idle"})
	cfg.Address = "127.0.0.1"
	blocks := &servertest.Blocks{Account: budget.New(budget.Config{Limit: 1 << 30})}
	parts := server.Parts{Core: core, Allocate: blocks.Allocate, Memory: blocks.Account, Logging: &servertest.Log[server.LogSettings]{}}
	parts.Open = func(n, _ int) (server.Filling, error) { return blocks.Open(n) }
	f, err := page.New(cfg, parts, noFiles{}, states{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	_, stop := servertest.Run(t, f)
	s := &site{t: t, core: core, url: "http://" + f.Addr().String()}
	s.client.Transport = &http.Transport{DisableKeepAlives: true}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if lent, charged := blocks.Lent.Load(), blocks.Account.Total(); lent != 0 || charged != 0 {
			t.Errorf("%d blocks are lent and %d bytes charged at the end, want none", lent, charged)
		}
	})
	return s
}

// reply is a reply with its body.
type reply struct {
	*http.Response
	text string
}

func (s *site) do(r *http.Request) reply {
	s.t.Helper()
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp, string(body)}
}

func (s *site) get(path string) reply {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(r)
}

var tokenField = regexp.MustCompile(`name="token" value="([^"]+)"`)

// form returns a browser's POST from the page with these fields. A field named "file NAME" is a
// file.
func (s *site) form(path string, fields ...string) *http.Request {
	s.t.Helper()
	if s.token == "" {
		match := tokenField.FindStringSubmatch(s.get("/models/batch").text)
		if match == nil {
			s.t.Fatal("the page of a model has no token")
		}
		s.token = match[1]
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.WriteField("token", s.token)
	for i := 0; i < len(fields); i += 2 {
		if name, file := strings.CutPrefix(fields[i], "file "); file {
			part, _ := w.CreateFormFile(name, "x.bin")
			_, _ = io.WriteString(part, fields[i+1])
			continue
		}
		_ = w.WriteField(fields[i], fields[i+1])
	}
	_ = w.Close()
	r, err := http.NewRequest(http.MethodPost, s.url+path, &b)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Origin", s.url)
	return r
}

func (s *site) post(path string, fields ...string) reply {
	s.t.Helper()
	return s.do(s.form(path, fields...))
}

// restricted restricts one group of endpoints.
func restricted(group string) rest.Config {
	return rest.Config{Restricted: []server.Restriction{{Groups: []string{group}, Header: "k", Value: "v"}}}
}

func wants(t *testing.T, what string, got reply, status int, texts ...string) {
	t.Helper()
	if got.StatusCode != status {
		t.Errorf("%s: got status %d, want %d: %.300s", what, got.StatusCode, status, got.text)
	}
	for _, text := range texts {
		if !strings.Contains(got.text, text) {
			t.Errorf("%s: got\n%s\nwant %q in it", what, got.text, text)
		}
	}
	if strings.Contains(got.text, evil) || strings.Contains(got.text, "<i>") {
		t.Errorf("%s: a text of a model is markup: %s", what, got.text)
	}
}

// TestPagesShowModels checks the pages of models in all states, and that markup in names and
// reasons is escaped.
func TestPagesShowModels(t *testing.T) {
	s := start(t, page.Config{}, servertest.NewCore(servertest.NewModel(evil, 0, "INPUT0 FP32 4", "OUTPUT0 FP32 4")))
	escaped := "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;"
	path := "/models/%3Cscript%3Ealert%28%22x%22%29%3C%2Fscript%3E"
	wants(t, "overview", s.get("/"), 200, escaped, `href="`+path+`/versions/1"`, "not loaded", "unavailable")
	wants(t, "model", s.get(path), 200, "<h1>"+escaped, "INPUT0", "# "+escaped, `action="`+path+`/infer#answer"`)
	wants(t, "version", s.get("/models/batch/versions/1"), 200, `value="1, 4"`, "FP32 [-1,4]", "models/batch/config.pbtxt")
	wants(t, "model that failed", s.get("/models/broken"), 200, escaped+"\n\nAt:\n  model.py(3)", "unavailable")
	wants(t, "model that is not loaded", s.get("/models/idle"), 200, "not loaded", "No version is ready.")
	wants(t, "model that was unloaded", s.get("/models/gone"), 200, `<span class="state off">unloaded</span>`)
	wants(t, "no config file", s.get("/models/classes"), 200, "There is no such file")
	for _, path := range []string{"/models/nothing", "/models", "/models/", "/models/batch/versions/x", "/models/batch/versions/7", "/models/batch/x", "/x", "/static/x/page.js"} {
		wants(t, path, s.get(path), 404)
	}
}

// TestEveryReplyIsGuarded checks the security headers of pages, files and errors.
func TestEveryReplyIsGuarded(t *testing.T) {
	s := start(t, page.Config{}, servertest.NewCore())
	script := regexp.MustCompile(`/static/[0-9a-f]{16}/page\.js`).FindString(s.get("/").text)
	foreign, _ := http.NewRequest(http.MethodGet, s.url+"/", nil)
	foreign.Host = "evil.example"
	for what, got := range map[string]reply{
		"page": s.get("/"), "script": s.get(script), "no page": s.get("/x"), "a foreign name": s.do(foreign), "answer": s.post("/models/batch/infer"),
	} {
		policy := got.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: got the policy %q", what, policy)
		}
		if got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got the headers %v", what, got.Header)
		}
		if fresh := got.Header.Get("Cache-Control") == "no-store"; fresh == (what == "script") && what != "a foreign name" {
			t.Errorf("%s: got Cache-Control %q", what, got.Header.Get("Cache-Control"))
		}
	}
	if inline := regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son\w+=|javascript:|style=`).FindString(s.get("/models/batch").text); inline != "" {
		t.Errorf("the page has %q, which its policy forbids", inline)
	}
}

// TestFormMakesRequests checks the request that the form makes, and that the page shows the
// response beside the sent values.
func TestFormMakesRequests(t *testing.T) {
	s := start(t, page.Config{}, servertest.NewCore())
	got := s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "2, 4", "values.0", "[[1,2,3,4],[5,6,7,8]]", "id", "r1", "parameters", `{"a": 1, "b": "<i>", "c": 0.5, "d": true}`)
	wants(t, "numbers", got, 200, "1.0  2.0  3.0  4.0\n5.0  6.0  7.0  8.0", "FP32 [2,4]", "[[1,2,3,4],[5,6,7,8]]", "32 B", "&lt;i&gt;")
	req := s.core.Last()
	if req.ID != "r1" || len(req.Parameters) != 4 || req.Parameters[0].Int != 1 || req.Parameters[1].String != "<i>" || req.Parameters[2].Double != 0.5 || !req.Parameters[3].Bool {
		t.Errorf("got the request %+v, want its id and parameters", req)
	}
	got = s.post("/models/id_bytes/versions/1/infer", "name.0", "INPUT0", "shape.0", "2", "values.0", evil+"\r\nü")
	wants(t, "texts", got, 200, "&lt;script&gt;", "ü")
	big := strings.Repeat("\x01", 100_000)
	got = s.post("/models/id_uint8/infer", "name.0", "INPUT0", "shape.0", "-1", "file file.0", big)
	wants(t, "file", got, 200, "UINT8 [100000]", "97.7 KiB", "99\u202f000 more values not shown")
	got = s.post("/models/id_bytes/infer", "name.0", "INPUT0", "shape.0", "1", "file file.0", "\x89PNG\r\n\x1a\nrest")
	wants(t, "picture", got, 200, `<img class="picture" src="data:image/png;base64,iVBORw0KGgpyZXN0"`)
	got = s.post("/models/id_bytes/infer", "name.0", "INPUT0", "shape.0", "1", "file file.0", "RIFF\x24\x00\x00\x00WAVEfmt ")
	wants(t, "sound", got, 200, `<audio controls src="data:audio/wav;base64,UklGR`, `download="OUTPUT0-0.wav"`, "Response")
	got = s.post("/models/multi/infer", "name.0", "INPUT0", "values.0", "", "name.1", "INPUT1", "shape.1", "1", "values.1", "2.5", "name.2", "INPUT2", "name.3", "INPUT3", "file file.3", "")
	wants(t, "optional inputs", got, 200, "OUTPUT1", "2.5")
	if inputs := s.core.Last().Inputs; len(inputs) != 1 {
		t.Errorf("optional inputs without values: %d inputs were sent, want 1", len(inputs))
	}
	wants(t, "model that fails", s.post("/models/fails/infer", "name.0", "INPUT0", "shape.0", "1", "values.0", "1"), 200, "Unavailable", "it fails: &#34;ü&#34; /x")
	wants(t, "values that do not fit", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "1 2 "+evil), 200, "Invalid argument", "Not sent", "input &#39;INPUT0&#39;")
	wants(t, "parameters that are none", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "1", "parameters", "[1]"), 200, "the parameters are not a JSON object")
	deep := strings.Repeat(`{"a":`, budget.MaxJSONDepth+1) + "1" + strings.Repeat("}", budget.MaxJSONDepth+1)
	wants(t, "nested parameters", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "[[1,2,3,4]]", "parameters", deep), 200, "JSON nesting depth exceeds")
	long := `{"` + strings.Repeat("x", budget.MaxName+1) + `":1}`
	wants(t, "a long name of a parameter", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "[[1,2,3,4]]", "parameters", long), 200, "the name of a parameter has 4097 bytes")
	wants(t, "a parameter of another type", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "[[1,2,3,4]]", "parameters", `{"a": []}`), 200, "parameter &#39;a&#39;: want a text")
	wants(t, "inputs of before a reload", s.post("/models/batch/infer", "name.0", "OLD"), 200, "have changed since the form was shown")
	wants(t, "unknown model", s.post("/models/nothing/infer"), 404)
	if back := s.get("/models/batch/infer"); back.StatusCode != http.StatusSeeOther || back.Header.Get("Location") != "/models/batch" {
		t.Errorf("a reload of the answer: got %d to %q, want 303 to the model", back.StatusCode, back.Header.Get("Location"))
	}
}

// TestSequencesHaveFields checks that the form of a sequence model has fields for the sequence's
// id, start and end.
func TestSequencesHaveFields(t *testing.T) {
	m := servertest.NewModel("sequence", 0, "INPUT0 INT32 1", "OUTPUT0 INT32 1")
	m.Info.Config.SchedulingChoice = &kserve.ModelConfig_SequenceBatching{SequenceBatching: &kserve.ModelSequenceBatching{}}
	s := start(t, page.Config{}, servertest.NewCore(m))
	wants(t, "fields", s.get("/models/sequence"), 200, `name="sequence"`, `name="start"`)
	s.post("/models/sequence/infer", "name.0", "INPUT0", "shape.0", "1", "values.0", "1", "sequence", "7", "start", "1")
	if req := s.core.Last(); req == nil || req.Correlation.Number != 7 || req.Flags != infer.SequenceStart {
		t.Errorf("got the request %+v, want sequence 7 and its start", req)
	}
	s.post("/models/sequence/infer", "name.0", "INPUT0", "shape.0", "1", "values.0", "1", "sequence", "seven", "end", "1")
	if req := s.core.Last(); req.Correlation.Text != "seven" || req.Flags != infer.SequenceEnd {
		t.Errorf("got the request %+v, want sequence seven and its end", req)
	}
}

// TestLongConfigsAreNotIndented checks that a config that is cut anyway is not indented first,
// which multiplies its size.
func TestLongConfigsAreNotIndented(t *testing.T) {
	core := servertest.NewCore()
	core.Models["id_int32"].Info.JSON = []byte(`{"parameters":{` + strings.Repeat(`"a":{},`, 50_000) + `"b":{}}}`)
	core.Models["id_bool"].Info.JSON = []byte(`{"parameters":{"a":{},"b":{}}}`)
	s := start(t, page.Config{}, core)
	wants(t, "a long config", s.get("/models/id_int32"), 200, `{&#34;parameters&#34;:{&#34;a&#34;:{},&#34;a&#34;:{},`)
	wants(t, "a short config", s.get("/models/id_bool"), 200, "{\n  &#34;parameters&#34;: {\n    &#34;a&#34;: {},\n")
}

// TestStreamsAreCut checks that a model that sends responses endlessly is cancelled after the last
// response that is shown.
func TestStreamsAreCut(t *testing.T) {
	m := servertest.NewModel("endless", 0, "INPUT0 INT32 1", "OUTPUT0 INT32 1")
	m.Info.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: true}
	m.Infer = func(ctx context.Context, _ *infer.Request, send infer.Sender) error {
		for ctx.Err() == nil {
			send(&infer.Response{Outputs: []infer.Tensor{{Name: "OUTPUT0", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}}}})
		}
		send(&infer.Response{Empty: true, Final: true})
		return nil
	}
	s := start(t, page.Config{}, servertest.NewCore(m))
	wants(t, "answer", s.post("/models/endless/infer", "name.0", "INPUT0", "shape.0", "1", "values.0", "1"), 200, "Response 64", "the request was then cancelled")
}

// TestOnlyThePageActs checks that requests from scripts and forms of other sites never reach a
// model.
func TestOnlyThePageActs(t *testing.T) {
	core := servertest.NewCore()
	s := start(t, page.Config{Explicit: true}, core)
	for _, c := range []struct {
		name   string
		status int
		change func(*http.Request)
	}{
		{"another origin", 403, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }},
		{"no origin", 403, func(r *http.Request) { r.Header.Del("Origin") }},
		{"a rebound name", 421, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") }},
		{"another site, as the browser says", 403, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		{"a question of the browser", 405, func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodOptions, nil, 0 }},
	} {
		for _, path := range []string{"/models/batch/infer", "/models/batch/load", "/models/batch/unload", "/models/batch/instances"} {
			r := s.form(path, "name.0", "INPUT0", "shape.0", "1,4", "values.0", "1", "count", "2")
			c.change(r)
			if got := s.do(r); got.StatusCode != c.status {
				t.Errorf("%s, %s: got %d %s, want %d", c.name, path, got.StatusCode, got.text, c.status)
			}
		}
	}
	real := s.token
	for _, token := range []string{"", "x", real[1:]} {
		s.token = "none"
		r := s.form("/models/batch/load", "token", token)
		if got := s.do(r); got.StatusCode != 403 || !strings.Contains(got.text, "reload the page") {
			t.Errorf("token %q: got %d %s, want 403", token, got.StatusCode, got.text)
		}
	}
	if len(core.Loads) != 0 || core.Served.Load() != 0 {
		t.Errorf("models were changed, %v, or executed %d requests; want neither", core.Loads, core.Served.Load())
	}
}

// TestControlLoadsAndUnloads checks the forms that load and unload models on a server with explicit
// model control.
func TestControlLoadsAndUnloads(t *testing.T) {
	core := servertest.NewCore()
	s := start(t, page.Config{Explicit: true}, core)
	wants(t, "overview", s.get("/"), 200, `action="/models/idle/load"`)
	wants(t, "model", s.get("/models/batch"), 200, `action="/models/batch/unload"`)
	for _, action := range [][]string{
		{"/models/idle/load"}, {"/models/batch/unload"}, {"/models/batch/unload", "dependents", "1"}, {"/models/batch/instances", "group", "g", "count", "3"},
	} {
		got := s.post(action[0], action[1:]...)
		if to := got.Header.Get("Location"); got.StatusCode != http.StatusSeeOther || !strings.HasPrefix(action[0], to+"/") {
			t.Errorf("%v: got %d to %q: %s", action, got.StatusCode, to, got.text)
		}
	}
	if got, want := fmt.Sprint(core.Loads), `[load idle "" [] unload batch false unload batch true instances batch "g" 3]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wants(t, "load that fails", s.post("/models/broken/load"), 409, "failed to poll from model repository")
	wants(t, "no count", s.post("/models/batch/instances", "count", "many"), 409, "want a whole number")
}

func TestNothingIsControlledUnlessClientsMay(t *testing.T) {
	core := servertest.NewCore()
	for _, cfg := range []page.Config{{}, {Explicit: true}} {
		if cfg.Explicit {
			cfg.Config = restricted(server.GroupModelRepository)
		}
		core.Listed = nil
		s := start(t, cfg, core)
		if strings.Contains(s.get("/").text, "/load") {
			t.Error("the page offers to load a model")
		}
		if cfg.Explicit {
			s.token = "x" // no page contains a form
			continue
		}
		wants(t, "load", s.post("/models/idle/load"), 403, "--model-control-mode=explicit")
	}
	if len(core.Loads) != 0 {
		t.Errorf("got %v, want no load", core.Loads)
	}
}

// TestLoadHoldsNoPage checks that pages can be read while a load hangs.
func TestLoadHoldsNoPage(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	core := servertest.NewCore()
	core.OnLoad = func(ctx context.Context, _, _ string, _ map[string][]byte) error {
		close(began)
		select {
		case <-release:
			return errors.New("it was released")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s := start(t, page.Config{Explicit: true}, core)
	loading := s.form("/models/idle/load")
	done := make(chan reply, 1)
	go func() { done <- s.do(loading) }()
	<-began
	wants(t, "overview", s.get("/"), 200)
	wants(t, "model", s.get("/models/idle"), 200)
	close(release)
	wants(t, "load", <-done, 409, "it was released")
}

// TestRestrictedGroupsAreClosed checks that the page does not show the data of restricted groups.
func TestRestrictedGroupsAreClosed(t *testing.T) {
	for _, c := range []struct{ group, path, gone string }{
		{server.GroupModelRepository, "/", "id_int32"},
		{server.GroupModelRepository, "/models/batch", "INPUT0"},
		{server.GroupModelConfig, "/models/batch", "config.pbtxt"},
		{server.GroupMetadata, "/models/batch", "INPUT0"},
		{server.GroupInference, "/models/batch", `/infer#`},
		{server.GroupStatistics, "/", "4711"},
	} {
		s := start(t, page.Config{Config: restricted(c.group)}, servertest.NewCore())
		if got := s.get(c.path); strings.Contains(got.text, c.gone) {
			t.Errorf("%s is restricted, and %s has %q", c.group, c.path, c.gone)
		}
	}
	core := servertest.NewCore()
	s := start(t, page.Config{Explicit: true, Config: restricted(server.GroupInference)}, core)
	wants(t, "request", s.post("/models/batch/infer", "name.0", "INPUT0", "shape.0", "1,4", "values.0", "1"), 403)
	if core.Served.Load() != 0 {
		t.Error("a restricted request was executed")
	}
}

// TestBodiesAreBounded checks that forms that are too long, of unknown length or of another type
// are rejected.
func TestBodiesAreBounded(t *testing.T) {
	cfg := page.Config{Explicit: true}
	cfg.MaxInputBytes = 10_000
	s := start(t, cfg, servertest.NewCore())
	wants(t, "too long", s.post("/models/batch/infer", "values.0", strings.Repeat("1", 20_000)), 413, "at most 10000 are allowed")
	wants(t, "a shape that is too large", s.post("/models/id_fp32/infer", "name.0", "INPUT0", "shape.0", "100000", "values.0", "1"), 200, "at most 10000 are allowed")
	r := s.form("/models/batch/infer")
	r.ContentLength = -1
	wants(t, "of unknown length", s.do(r), 411)
	r = s.form("/models/batch/infer")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	wants(t, "another type", s.do(r), 400, "want multipart/form-data")
	r = s.form("/models/batch/infer")
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	wants(t, "another boundary", s.do(r), 403)
	r = s.form("/models/batch/infer")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("--x\r\nno header\r\n")), 16
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	wants(t, "half a form", s.do(r), 400, "malformed")
}

// TestPanicsEndOneRequest checks that a panic in a model ends only its request, and that no memory
// leaks.
func TestPanicsEndOneRequest(t *testing.T) {
	m := servertest.NewModel("panics", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	m.Infer = func(context.Context, *infer.Request, infer.Sender) error { panic("a bug") }
	s := start(t, page.Config{}, servertest.NewCore(m))
	got := s.post("/models/panics/infer", "name.0", "INPUT0", "shape.0", "100000", "values.0", "1")
	if got.StatusCode != http.StatusInternalServerError {
		t.Errorf("got %d %s, want 500", got.StatusCode, got.text)
	}
	wants(t, "the page after it", s.get("/"), 200)
}

// states is a Status with a version that has lost a process, and a log that contains markup.
type states struct{}

func (states) Snapshot(_ context.Context, _ uint64, lines int) *status.Snapshot {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	since := at.Add(-90 * time.Second)
	next := at.Add(4 * time.Second)
	times := &status.Percentiles{P50: 0.0012, P90: 0.002, P95: 0.0031, P99: 0.0154}
	log := []status.Line{
		{Time: at.Add(-time.Second), Level: "info", Source: "a.go:1", Text: "older"},
		{Time: at, Level: "error", Source: "b.go:2", Text: "newer " + evil + "\nAt:\n  model.py(3)"},
	}
	return &status.Snapshot{
		At: at, Server: status.Server{PID: 4711, Uptime: 3700, Control: "explicit", MemoryUsed: 5 << 20, MemoryLimit: 4 << 30, Resident: 80 << 20, CPU: 2.5,
			Holders: []status.Holder{{Name: "model " + evil, Bytes: 3 << 20}, {Name: "another", Bytes: 2 << 20}}},
		Versions: []status.Version{{
			Model: "batch", Version: 1, State: "READY", Queue: 17, InFlight: 19, Groups: []status.Group{{Name: "batch_0", Kind: "CPU", Count: 2}},
			Counters: status.Counters{Succeeded: 12345, Failed: map[string]int64{"REJECTED": 6, "BACKEND": 1}, Inferences: 30, Executions: 20},
			Recent: []status.Period{
				{Seconds: 60, Covered: 60, Succeeded: 600, Failed: 1, Inferences: 1200, Executions: 500, Request: times, Queue: times, Infer: times},
				{Seconds: 300, Covered: 200, Succeeded: 2000, Failed: 3, Request: times}, {Seconds: 900, Covered: 200},
			},
			Instances: []status.Instance{
				{Name: "batch_0_0", State: "busy", Since: &since, Kind: "GPU", Device: 1, PID: 812, Resident: 300 << 20, Arena: 1 << 20, Memory: map[string]int64{"frames": 3 << 20, "blocks": 2 << 20}, CPU: 61},
				{Name: "batch_0_1", State: "backing off", Since: &since, NextStart: &next, Kind: "CPU", Restarts: 3, Losses: 4,
					LastLoss: &status.Loss{At: at.Add(-5 * time.Second), Cause: "exit", Text: "process exited with code 1\n" + evil}},
			},
		}, {Model: "enum", State: "UNAVAILABLE", Reason: "models/enum/config.pbtxt:2:20: " + evil}, {Model: "empty", State: "UNAVAILABLE", Reason: "no folder\nof a version"}},
		Log: log[max(0, 2-lines):], Errors: log[1:][max(0, 1-lines):],
	}
}

// TestFiguresAreShown checks that the page shows the status of a version and the log.
func TestFiguresAreShown(t *testing.T) {
	s := start(t, page.Config{Explicit: true}, servertest.NewCore())
	wants(t, "overview", s.get("/"), 200, "61 min", "5.00 MiB", "4.00 GiB", "model &lt;script&gt;", "3.00 MiB", "4711", "1 of 2", ">19<", ">17<", "2\u202f000", "1.20 ms", "15.4 ms", ">3<", "newer &lt;script&gt;")
	wants(t, "model", s.get("/models/batch"), 200, "12\u202f345", "REJECTED 6", "BACKEND 1", "10.0", "3 min watched", "GPU 1", "90 s", "300 MiB", "backing off", "retry in 5 s",
		"Lost 5 s ago (exit)", "process exited with code 1\n&lt;script&gt;", `name="group" value="batch_0"`, ">2.4<", "execution", "3.10 ms")
	log := s.get("/log")
	wants(t, "log", log, 200, `datetime="2026-07-01T12:00:00Z"`, "newer &lt;script&gt;", "model.py(3)", "older", "a.go:1")
	if strings.Index(log.text, "newer") > strings.Index(log.text, "older") {
		t.Error("the oldest line of the log comes first")
	}
	wants(t, "errors", s.get("/errors"), 200, "newer")
	if text := s.get("/errors").text; strings.Contains(text, "older") {
		t.Error("the errors have a line that is none")
	}
	for _, group := range []string{server.GroupLogging, server.GroupStatistics} {
		s := start(t, page.Config{Config: restricted(group)}, servertest.NewCore())
		if text := s.get("/").text; strings.Contains(text, "newer") != (group != server.GroupLogging) || strings.Contains(text, "4711") != (group != server.GroupStatistics) {
			t.Errorf("%s is restricted: got the overview %s", group, text)
		}
		if got, want := s.get("/log").StatusCode == http.StatusForbidden, group == server.GroupLogging; got != want {
			t.Errorf("%s is restricted: the log is closed: %v, want %v", group, got, want)
		}
		if text := s.get("/models/batch").text; strings.Contains(text, "backing off") != (group != server.GroupStatistics) {
			t.Errorf("%s is restricted: got the model %s", group, text)
		}
	}
}

// TestModelsWithoutVersionsHaveReasons checks that the page shows why a model has no version, for a
// model that the index lists without a state and for an unlisted model.
func TestModelsWithoutVersionsHaveReasons(t *testing.T) {
	core := servertest.NewCore()
	core.Listed = []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "enum"}}
	s := start(t, page.Config{Explicit: true}, core)
	const reason = "models/enum/config.pbtxt:2:20: &lt;script&gt;"
	wants(t, "overview", s.get("/"), 200, reason, "no folder", `href="/models/empty"`, "3 unavailable", "1 unloaded")
	wants(t, "model", s.get("/models/enum"), 200, reason, "unavailable")
	wants(t, "model that the index does not list", s.get("/models/empty"), 200, "no folder\nof a version")
	closed := start(t, page.Config{Config: restricted(server.GroupModelRepository)}, servertest.NewCore())
	if text := closed.get("/").text; strings.Contains(text, "enum") || strings.Contains(text, "no folder") {
		t.Errorf("model-repository is restricted: got the overview %s", text)
	}
}
