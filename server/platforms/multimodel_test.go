package platforms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/servertest"
)

// FakeRepositories records registrations.
type FakeRepositories struct {
	mu         sync.Mutex
	Registered map[string]string // the directory and the name, by the path
	awaited    func(ctx context.Context, name string) error
}

func (f *FakeRepositories) RegisterRepository(path, where, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Registered[path] != "" {
		return infer.Errorf(infer.AlreadyExists, "model repository '%s' has already been registered", path)
	}
	f.Registered[path] = where + " " + name
	return nil
}

func (f *FakeRepositories) UnregisterRepository(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Registered[path] == "" {
		return infer.Errorf(infer.InvalidArg, "failed to unregister '%s', repository not found", path)
	}
	delete(f.Registered, path)
	return nil
}

func (f *FakeRepositories) AwaitUnloaded(ctx context.Context, name string) error {
	if f.awaited == nil {
		return nil
	}
	return f.awaited(ctx, name)
}

func (f *FakeRepositories) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.Registered)
}

// testFront is a SageMaker front end over fakes.
type testFront struct {
	core         *servertest.Core
	repositories *FakeRepositories
	base         string
	ask          func(method, path, body string, header ...string) (int, string)
}

func startSageMaker(t *testing.T) *testFront {
	t.Helper()
	f := &testFront{core: servertest.NewCore(), repositories: &FakeRepositories{Registered: map[string]string{}}, base: t.TempDir()}
	testkit.WriteFiles(t, f.base, map[string]string{"batch/model/dir/config.pbtxt": "", "new/model/config.pbtxt": ""})
	front, err := NewSageMaker(SageMakerConfig{Repositories: f.repositories, ModelDirectory: f.base},
		server.Parts{Core: f.core, Logging: &servertest.Log[server.LogSettings]{}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	_, stop := servertest.Run(t, front)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: servertest.Patience}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	f.ask = func(method, path, body string, header ...string) (int, string) {
		r, err := http.NewRequest(method, "http://"+front.Addr().String()+path, strings.NewReader(strings.ReplaceAll(body, "BASE", f.base)))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		reply, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Error(err)
		}
		return reply.StatusCode, string(text)
	}
	return f
}

func TestPathsOfModelsAreTakenApart(t *testing.T) {
	for _, c := range []struct {
		below, hash string
		invoke, ok  bool
	}{
		{"", "", false, true}, {"/", "", false, true}, {"/x", "x", false, true}, {"x", "x", false, true},
		{"/x/invoke", "x", true, true}, {"x/invoke", "x", true, true}, {"/invoke", "invoke", false, true}, {"//invoke", "", true, true},
		{"/x/", "x", true, false}, {"/x/foo", "x", true, false}, {"/x/invoke/", "x", true, false}, {"//", "", true, false}, {"/x%2Fy", "x%2Fy", false, true},
	} {
		hash, invoke, ok := parseModelPath(c.below)
		if ok != c.ok || ok && (hash != c.hash || invoke != c.invoke) {
			t.Errorf("%q: got %q %v %v, want %q %v %v", c.below, hash, invoke, ok, c.hash, c.invoke, c.ok)
		}
	}
}

func TestURLsAreChecked(t *testing.T) {
	m := &multiModel{base: "/opt/ml/models"}
	const form = ": expected a path of the form /opt/ml/models/<hash>/model[/<subdir>]"
	for url, want := range map[string]string{
		"/opt/ml/models/h/model":          "/opt/ml/models/h/model",
		"/opt/ml/models/h/model/":         "/opt/ml/models/h/model",
		"/opt/ml//models/./h_1.X/model/s": "/opt/ml/models/h_1.X/model/s",
		"/x/../opt/ml/models/h/model":     "/opt/ml/models/h/model",
		"/opt/ml/models/h-1/model":        "", "/opt/ml/models/h/model/s-1": "", "/opt/ml/models/h/model/s/t": "", "/opt/ml/models/h": "",
		"/opt/ml/models/model": "", "/opt/ml/models/h/other": "", "/opt/ml/modelsh/model": "", "/opt/ml/models/h/model/../../..": "", "": "", "model": "",
		"/dev/h/model": "kernel", "/proc": "kernel", "/x/../sys/a": "kernel",
	} {
		path, err := m.check(url)
		switch {
		case want == "kernel":
			if path != "" || err != nil {
				t.Errorf("%s: got %q, %v, want neither", url, path, err)
			}
		case want == "":
			if err == nil || err.Error() != `Invalid "url" '`+url+`'`+form {
				t.Errorf("%s: got %q, %v, want a refusal", url, path, err)
			}
		case path != want || err != nil:
			t.Errorf("%s: got %q, %v, want %s", url, path, err, want)
		}
	}
	root := &multiModel{base: "/"}
	if path, err := root.check("/h/model"); path != "/h/model" || err != nil {
		t.Errorf("below the root: got %q, %v", path, err)
	}
}

func TestModelsArePlacedByTheirFiles(t *testing.T) {
	base := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"own/model/config.pbtxt": "", "own/model/sub/config.pbtxt": "", "one/model/dir/1/": "", "one/model/file": "", "none/model/file": "",
		"ensemble/model/a/config.pbtxt": "platform: \"x\"", "ensemble/model/b/config.pbtxt": "platform:\n \"ensemble\"", "ensemble/model/c/1/": "",
	})
	m := &multiModel{base: base}
	for path, want := range map[string]location{
		"own/model":      {"own", "model"},
		"own/model/sub":  {"own", "model"},
		"one/model":      {"one/model", "dir"},
		"none/model":     {"none/model", ""},
		"missing/model":  {"missing/model", ""},
		"ensemble/model": {"ensemble/model", "b"},
	} {
		want.path = filepath.Join(base, want.path)
		if got := m.locate(filepath.Join(base, path)); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func TestStatusFollowsTheText(t *testing.T) {
	for text, want := range map[string]int{
		"BOOM": 507, "x: CUDA out of memory. y": 507, "CUBLAS_STATUS_ALLOC_FAILED": 507, "No space left on device": 507,
		"OUT OF MEMORY": 400, "oom": 400, "": 400,
	} {
		if got := statusOf(infer.Errorf(infer.NotFound, "%s", text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

const loadBatch = `{"model_name":"batch","url":"BASE/batch/model"}`

// TestLoadsAreTakenBack checks that failed loads are undone, even after a panic.
func TestLoadsAreTakenBack(t *testing.T) {
	f := startSageMaker(t)
	f.core.Panics = true
	for _, failure := range []func() error{
		func() error { return infer.Errorf(infer.Unavailable, "no") },
		func() error { return errors.New("out of memory") },
		func() error { panic("a bug below the load") },
	} {
		f.core.OnLoad = func(context.Context, string, string, map[string][]byte) error { return failure() }
		f.ask(http.MethodPost, "/models", `{"model_name":"new","url":"BASE/new/model"}`)
		if got := f.repositories.String(); got != "map[]" {
			t.Errorf("got %s registered, want nothing", got)
		}
		if got := f.core.Loads[len(f.core.Loads)-1]; got != "unload new true" {
			t.Errorf("got %q last, want an unload", got)
		}
	}
	f.core.OnLoad = nil
	if status, text := f.ask(http.MethodPost, "/models", loadBatch); status != http.StatusOK {
		t.Errorf("got %d %s", status, text)
	}
	if got := f.repositories.String(); got != "map["+f.base+"/batch/model:dir batch]" {
		t.Errorf("got %s registered", got)
	}
}

// TestUnloadsWaitBoundedly checks that an unload waits for a limited time, and that only the first
// of two concurrent unloads reports success.
func TestUnloadsWaitBoundedly(t *testing.T) {
	f := startSageMaker(t)
	begun, end := make(chan time.Duration, 2), make(chan struct{}) // a value for each unload; closed for both
	f.repositories.awaited = func(ctx context.Context, name string) error {
		deadline, _ := ctx.Deadline()
		begun <- time.Until(deadline)
		<-end
		return context.DeadlineExceeded
	}
	if status, text := f.ask(http.MethodPost, "/models", loadBatch); status != http.StatusOK {
		t.Fatalf("got %d %s", status, text)
	}
	statuses := make(chan int, 2)
	for range 2 {
		go func() {
			status, _ := f.ask(http.MethodDelete, "/models/batch", "")
			statuses <- status
		}()
	}
	for range 2 {
		if left := <-begun; left > unloadPatience || left < unloadPatience/2 {
			t.Errorf("an unload waits for %v, want at most %v", left, unloadPatience)
		}
	}
	if status, text := f.ask(http.MethodGet, "/models/batch", ""); status != http.StatusOK {
		t.Errorf("while it is unloaded: got %d %s, want what is known of it", status, text)
	}
	close(end)
	if first, second := <-statuses, <-statuses; first+second != http.StatusOK+http.StatusNotFound {
		t.Errorf("got %d and %d, want 200 and 404", first, second)
	}
	if got := f.repositories.String(); got != "map[]" {
		t.Errorf("got %s registered, want nothing", got)
	}
}

// TestPagesOfOtherSitesChangeNothing checks that a browser cannot load or unload a model for a page
// of another site, but that the platform can, and that such a page can ask for models.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	f := startSageMaker(t)
	for _, tt := range []struct {
		method, path, body, site string
		want                     int
	}{
		{http.MethodPost, "/models", loadBatch, "cross-site", http.StatusForbidden},
		{http.MethodPost, "/models", loadBatch, "same-origin", http.StatusOK},
		{http.MethodGet, "/models", "", "cross-site", http.StatusOK},
		{http.MethodDelete, "/models/batch", "", "cross-site", http.StatusForbidden},
		{http.MethodDelete, "/models/batch", "", "none", http.StatusOK},
	} {
		if status, text := f.ask(tt.method, tt.path, tt.body, "Sec-Fetch-Site", tt.site); status != tt.want {
			t.Errorf("%s %s for a %s page: got %d %s, want %d", tt.method, tt.path, tt.site, status, text, tt.want)
		}
	}
}

// TestNamesOfLoadsAreBounded checks that a load with a name of more than 4 KiB registers nothing.
func TestNamesOfLoadsAreBounded(t *testing.T) {
	f := startSageMaker(t)
	for n, want := range map[int]int{budget.MaxName: http.StatusOK, budget.MaxName + 1: http.StatusBadRequest} {
		status, text := f.ask(http.MethodPost, "/models", `{"model_name":"`+strings.Repeat("x", n)+`","url":"BASE/batch/model"}`, "X-Amzn-SageMaker-Target-Model", fmt.Sprint("m", n))
		if status != want || want != http.StatusOK && !strings.Contains(text, "'model_name' has 4097 bytes, but at most 4096 are allowed") {
			t.Errorf("%d bytes: got %d %.200s, want %d", n, status, text, want)
		}
	}
	if got := f.repositories.String(); got != "map["+f.base+"/batch/model:dir m4096]" {
		t.Errorf("got %s registered, want the model with the shorter name", got)
	}
}
