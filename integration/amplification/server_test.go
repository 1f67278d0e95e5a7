package amplification

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk"
)

const (
	accountLimit = 256 << 20
	// plainBytes is the amount by which the live heap may exceed twice the charged bytes.
	plainBytes = 32 << 20
	// volleyTries is how often a volley is sent at most before it must be within the bound.
	volleyTries  = 3
	predictRoute = "/predict"
	healthRoute  = "/health"
)

// These are the backends of the good models: one in this process and one in a separate process.
const (
	linkedBackend = "linked"
	hostedBackend = "hosted"
)

// textConfig is the config of a model with a text input, which OpenAI clients can use too.
const textConfig = `
input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
`

// chatTemplate indents tools with its own setting, like the template of Llama 3.1.
const chatTemplate = `{%- if tools is not none and tools %}{%- for t in tools %}{{ t | tojson(indent=4) }}{%- endfor %}{%- endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content }}{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}
{% endfor %}`

func configOf(backend string) string { return fmt.Sprintf("backend: %q\n%s", backend, textConfig) }

// echo is a backend whose models return their input.
type echo struct{}

func newEcho(*sdk.BackendEnv) (sdk.Backend, error) { return echo{}, nil }

func (echo) Attributes() sdk.Attributes                         { return sdk.Attributes{} }
func (echo) NewModel(*sdk.ModelEnv) (sdk.Model, error)          { return echo{}, nil }
func (echo) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return echo{}, nil }
func (echo) Close()                                             {}

func (echo) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		p, err := r.NewResponse()
		if err != nil {
			continue
		}
		in, err := r.Input(textInput)
		if err == nil {
			err = p.Forward(textOutput, nil, in)
		}
		_ = p.Send(sdk.SendFinal, err)
		_ = r.Release(sdk.ReleaseAll)
	}
	return nil
}

// victim is a server in this process with all its front ends.
type victim struct {
	*nereid.Server
	addresses map[string]string
	stop      func() error // stops the server and returns the error of Run
	stopped   bool         // the test has checked the error
}

// serve starts a victim whose repository holds the good models. change may change its options.
func serve(t *testing.T, change func(o *nereid.Options)) *victim {
	t.Helper()
	models, template := t.TempDir(), filepath.Join(t.TempDir(), "chat.jinja")
	testkit.WriteFiles(t, models, map[string]string{
		goodModel + "/config.pbtxt": configOf(hostedBackend), goodModel + "/1/": "",
		spareModel + "/config.pbtxt": configOf(linkedBackend), spareModel + "/1/": "",
		numbers + "/config.pbtxt": strings.ReplaceAll(configOf(linkedBackend), "TYPE_STRING", "TYPE_FP32"), numbers + "/1/": "",
	})
	if err := os.WriteFile(template, []byte(chatTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	o := nereid.Defaults()
	nereid.WithBackend(linkedBackend, newEcho)(&o)
	o.Backends.Directory = plugins(t)
	o.RequestMemoryBytes = accountLimit
	o.AllowClientSHM = true
	o.Repository.Paths, o.Repository.Control, o.Repository.StartupModels = []string{models}, nereid.ControlExplicit, []string{goodModel, numbers}
	o.HTTP.Address, o.HTTP.Port, o.HTTP.DrainTime = "127.0.0.1", 0, 0
	o.GRPC.Address, o.GRPC.Port = "127.0.0.1", 0
	o.Metrics.Port = 0
	o.OpenAI.Allow, o.OpenAI.ChatTemplate = true, template
	o.SageMaker.Allow, o.SageMaker.DefaultModel, o.SageMaker.InferenceType, o.SageMaker.ModelDirectory = true, goodModel, "infer", t.TempDir()
	o.VertexAI.Allow, o.VertexAI.DefaultModel, o.VertexAI.PredictRoute, o.VertexAI.HealthRoute = true, goodModel, predictRoute, healthRoute
	o.Page.Allow = true
	if change != nil {
		change(&o)
	}
	o.Logger = zerolog.New(io.Discard)
	s, err := nereid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1) // receives the result of Run, once
	go func() { ended <- s.Run(ctx) }()
	v := &victim{Server: s, addresses: map[string]string{}, stop: sync.OnceValue(func() error {
		stop()
		return <-ended
	})}
	t.Cleanup(func() {
		if err := v.stop(); err != nil && !v.stopped {
			t.Errorf("Run: got error %v, want none", err)
		}
		// Dropped gRPC replies are released by the garbage collector. The pool keeps a few blocks
		// until Close.
		if !testkit.Within(patience, func() bool { runtime.GC(); return s.Account().Used(budget.Blocks) <= 4<<20 }) {
			t.Errorf("%d bytes of blocks are lent in the end", s.Account().Used(budget.Blocks))
		}
	})
	for front, address := range map[string]string{
		"REST": s.HTTPAddr().String(), "gRPC": s.GRPCAddr().String(), "OpenAI": s.OpenAIAddr().String(), "SageMaker": s.SageMakerAddr().String(),
		"Vertex AI": s.VertexAIAddr().String(), "metrics": s.MetricsAddr().String(), "page": s.PageAddr().String(),
	} {
		v.addresses[front] = "127.0.0.1" + address[strings.LastIndexByte(address, ':'):]
	}
	return v
}

// hashedModel is the hash and the name of a model that SageMaker's platform has loaded.
const hashedModel = "hashed"

// host loads the model of SageMaker's platform.
func (v *victim) host(t *testing.T, directory string) {
	t.Helper()
	model := filepath.Join(directory, hashedModel, "model")
	testkit.WriteFiles(t, model, map[string]string{"config.pbtxt": configOf(linkedBackend), "1/": ""})
	reply, err := http.Post("http://"+v.addresses["SageMaker"]+"/models", "application/json", strings.NewReader(fmt.Sprintf(`{"model_name":%q,"url":%q}`, hashedModel, model)))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if text, _ := io.ReadAll(reply.Body); reply.StatusCode != http.StatusOK {
		t.Fatalf("load a model as SageMaker does: status %d, %s", reply.StatusCode, text)
	}
}

// heapKinds are the kinds of memory on the Go heap.
var heapKinds = []budget.Kind{budget.Bodies, budget.JSON, budget.Decompression, budget.Replies, budget.Transport, budget.States, budget.Frames}

// charged returns the charged bytes on the Go heap.
func (v *victim) charged() (n int64) {
	for _, k := range heapKinds {
		n += v.Account().Used(k)
	}
	return n
}

// good sends a valid request and returns an error unless the reply is correct.
func (v *victim) good() error {
	const body = `{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["good"]}]}`
	reply, err := http.Post("http://"+v.addresses["REST"]+"/v2/models/"+goodModel+"/infer", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(text), `"data":["good"]`) {
		return fmt.Errorf("status %d, %.300s, error %w", reply.StatusCode, text, err)
	}
	return nil
}

// attacker is the client process.
type attacker struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// startAttacker starts the client process and returns its attacks.
func startAttacker(t *testing.T, to *target) (*attacker, []attack) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, clientArgument)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
	})
	a := &attacker{t: t, in: in, out: bufio.NewReader(out)}
	a.tell(to)
	var attacks []attack
	a.hear(&attacks)
	return a, attacks
}

func (a *attacker) tell(v any) {
	a.t.Helper()
	line, err := json.Marshal(v)
	if err == nil {
		_, err = a.in.Write(append(line, '\n'))
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *attacker) hear(into any) {
	a.t.Helper()
	line, err := a.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		a.t.Fatalf("the client says nothing more: %v", err)
	}
}

// TestLiveHeapFollowsTheAccount sends each attack to each entry point. Meanwhile the live heap must
// stay below twice the charged bytes plus 32 MiB. Afterwards all charges must be released and a
// good request must succeed.
func TestLiveHeapFollowsTheAccount(t *testing.T) {
	hosted := t.TempDir()
	v := serve(t, func(o *nereid.Options) { o.SageMaker.ModelDirectory = hosted })
	v.host(t, hosted)
	document := fetch(t, "http://"+v.addresses["REST"]+"/openapi.json")
	client, attacks := startAttacker(t, &target{Addresses: v.addresses, Document: document, Token: v.token(t)})
	covers(t, document, attacks)
	t.Logf("%d attacks", len(attacks))
	if err := v.good(); err != nil {
		t.Fatal(err)
	}
	rest := v.charged()
	var begun time.Time
	for first := 0; first < len(attacks); {
		entry, last := attacks[first].Entry, first
		for last < len(attacks) && attacks[last].Entry == entry {
			last++
		}
		t.Run(strings.ReplaceAll(entry, "/", "."), func(t *testing.T) { // slashes separate subtest names
			client.t = t
			begun = time.Now()
			chosen := oneOfEach(attacks[first:last])
			for i := first; i < last; i++ {
				if !sampled(i) && (raceEnabled || !chosen[i-first]) {
					continue
				}
				a := &attacks[i]
				for k := range a.Volleys {
					if v.suffer(t, client, a, i, k) {
						break // smaller volleys cost less
					}
				}
				rest = v.recover(t, a.Kind, rest)
			}
			t.Logf("%d attacks in %v", last-first, time.Since(begun).Round(time.Millisecond))
		})
		client.t = t
		first = last
	}
}

// suffer makes the client send a volley and reports whether the server processed any of the bodies.
// A volley above the bound is repeated: a collection counts all memory as live that was allocated
// while it ran. On a busy machine that may be the garbage of a whole volley.
func (v *victim) suffer(t *testing.T, client *attacker, a *attack, which, k int) bool {
	t.Helper()
	for try := 1; ; try++ {
		var o outcome
		total, begun := int64(0), time.Now()
		peak := testkit.PeakHeap(v.charged, func() {
			_, _ = fmt.Fprintln(client.in, which, k)
			client.hear(&o)
			total = v.Account().Total()
		})
		_, _ = fmt.Fprintln(client.in)
		client.hear(&struct{}{})
		what := fmt.Sprintf("%s, %d × %d bytes (%d sent)", a.Kind, a.Volleys[k].Copies, a.Volleys[k].Size, o.Sent)
		more := fmt.Sprintf("account in the end %.1f MiB; %v, %v", mebibytes(total), o.Statuses, time.Since(begun).Round(time.Millisecond))
		if try < volleyTries && exceeds(peak) {
			report(t.Logf, "repeated: "+what, peak, more)
			continue
		}
		v.judge(t, what, peak, more)
		return o.taken()
	}
}

// exceeds reports whether the peak of the live heap is too far above that of the charged bytes.
func exceeds(peak testkit.Peak) bool { return peak.Live >= 2*peak.Charged+plainBytes }

// judge checks the peak of the live heap against the peak of the charged bytes.
func (v *victim) judge(t *testing.T, what string, peak testkit.Peak, more string) {
	t.Helper()
	say := t.Logf
	if exceeds(peak) {
		say = t.Errorf
	}
	report(say, what, peak, more)
}

func report(say func(string, ...any), what string, peak testkit.Peak, more string) {
	say("%s: peak live %.1f MiB, charged %.1f MiB, %s", what, mebibytes(peak.Live), mebibytes(peak.Charged), more)
}

// recover waits until all new charges are released and checks that a good request succeeds.
func (v *victim) recover(t *testing.T, what string, before int64) (charged int64) {
	t.Helper()
	if !testkit.Within(patience, func() bool { return v.charged() <= before+1<<20 }) {
		t.Errorf("%s: %d bytes are charged long afterwards, %d were before all attacks", what, v.charged(), before)
		before = v.charged()
	}
	if err := v.good(); err != nil {
		t.Errorf("%s: a good request afterwards: %v", what, err)
	}
	return before
}

// token returns the token in the page's forms.
func (v *victim) token(t *testing.T) string {
	t.Helper()
	page := fetch(t, "http://"+v.addresses["page"]+"/models/"+goodModel)
	found := regexp.MustCompile(`name="token" value="([^"]+)"`).FindSubmatch(page)
	if found == nil {
		t.Fatalf("no token in %.300s", page)
	}
	return string(found[1])
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %.300s, error %v", url, reply.StatusCode, text, err)
	}
	return text
}

// covers checks that there is an attack on each RPC, on each method of each path in the document,
// and on each path in the sources of the other front ends.
func covers(t *testing.T, document []byte, attacks []attack) {
	t.Helper()
	all := map[string]bool{}
	for i := range attacks {
		all[attacks[i].Entry] = true
	}
	for entry := range methods() {
		if !all[entry] {
			t.Errorf("no attack on %s", entry)
		}
	}
	endpoints, err := described(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endpoints {
		if !all[e.entry()] {
			t.Errorf("no attack on %s", e.entry())
		}
	}
	const directory = "/opt/ml/models" // a default of SageMaker
	for folder, fronts := range map[string]string{"server/openai": "OpenAI", "server/platforms": "SageMaker|Vertex AI", "server/page": "page", "server/rest": "REST|metrics"} {
		for _, path := range pathsIn(folder) {
			found := path == directory
			pattern := regexp.MustCompile(`^(` + fronts + `) [A-Z]+ .*` + regexp.QuoteMeta(path))
			for entry := range all {
				found = found || pattern.MatchString(entry)
			}
			if !found {
				t.Errorf("no attack on %s, a path in %s", path, folder)
			}
		}
	}
}
