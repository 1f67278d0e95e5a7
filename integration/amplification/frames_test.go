package amplification

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
)

// These are the models of the hostile plugin.
const (
	hostileModel  = "hostile"
	hostileStream = "hostile_stream" // decoupled
)

// flood is how long the test waits for the plugin to send its frames after the first.
const flood = time.Second

const inferPath = "/inference.GRPCInferenceService/"

// TestLiveHeapFollowsTheAccountOfModels sends each form of each golden frame from a plugin, to
// clients that do not read. The live heap must stay within its bound.
func TestLiveHeapFollowsTheAccountOfModels(t *testing.T) {
	var repository string
	v := serve(t, func(o *nereid.Options) {
		repository = o.Repository.Paths[0]
		// Requests that the plugin leaves open end with its process.
		o.Backends.Settings = map[string]map[string]string{hostileBackend: {"unload-timeout-seconds": "1"}}
		config := configOf(hostileBackend)
		testkit.WriteFiles(t, repository, map[string]string{
			hostileModel + "/config.pbtxt": config, hostileModel + "/1/": "",
			hostileStream + "/config.pbtxt": config + "model_transaction_policy { decoupled: true }", hostileStream + "/1/": "",
		})
	})
	golden := filepath.Join(testkit.Root(t), "ipc", "testdata")
	frames, err := goldenFrames(golden)
	if err != nil || len(frames) == 0 {
		t.Fatalf("got %d golden frames, error %v", len(frames), err)
	}
	rest, number := int64(-1), 0
	same := map[string]bool{} // cases that do not depend on the golden frame, and fields that have had their worst value
	for _, model := range []string{hostileModel, hostileStream} {
		defer v.ask(t, model, "unload") // its process may still have frames to send
		for _, name := range slices.Sorted(maps.Keys(frames)) {
			if _, ok := mapOf(frames[name]); ok && model == hostileStream {
				continue // same as with the other model
			}
			t.Run(model+"_"+name, func(t *testing.T) {
				for _, form := range formsOfFrame(frames[name]) {
					if known := model + commonCase(frames[name], form); same[known] {
						continue
					} else if known != model {
						same[known] = true
					}
					at := model + " " + positionOf(frames[name], name, form)
					if number++; !sampled(number) && (raceEnabled || !needed(form) || same[at]) {
						continue
					}
					same[at] = same[at] || needed(form)
					c := frameCase{Frame: name, Form: form, Model: model}
					directory := filepath.Join(repository, model, "1")
					v.reload(t, model, directory, golden)
					if rest < 0 {
						rest = v.charged()
					}
					malformed := v.malformed(t)
					v.endure(t, c, directory, golden)
					rest = v.recover(t, form, rest)
					v.ask(t, model, "unload")
					v.understood(t, form, malformed)
				}
			})
		}
	}
}

// plugins creates a directory of backends, whose programs are copies of this test binary.
func plugins(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	backends := t.TempDir()
	for _, name := range []string{hostedBackend, hostileBackend} {
		to := filepath.Join(backends, name, "nereid_"+name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, program, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	return backends
}

// reload starts a new process for the model.
func (v *victim) reload(t *testing.T, model, directory, golden string) {
	t.Helper()
	writeCase(t, directory, golden, frameCase{})
	v.ask(t, model, "unload")
	v.ask(t, model, "load")
}

// ask loads or unloads a model.
func (v *victim) ask(t *testing.T, model, action string) {
	t.Helper()
	if status, text := v.try(t, model, action); status != http.StatusOK {
		t.Fatalf("%s %s: status %d, %s", action, model, status, text)
	}
}

// try loads or unloads a model, which may fail.
func (v *victim) try(t *testing.T, model, action string) (status int, text []byte) {
	t.Helper()
	reply, err := http.Post("http://"+v.addresses["REST"]+"/v2/repository/models/"+model+"/"+action, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err = io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, text
}

// TestLiveHeapFollowsTheAccountOfStarts sends each form of the frames with which processes answer
// at their start and end, from several processes at once.
func TestLiveHeapFollowsTheAccountOfStarts(t *testing.T) {
	var repository string
	v := serve(t, func(o *nereid.Options) {
		repository = o.Repository.Paths[0]
		o.Backends.Settings = map[string]map[string]string{hostileBackend: {"unload-timeout-seconds": "1"}}
		testkit.WriteFiles(t, repository, map[string]string{
			hostileModel + "/config.pbtxt": strings.Replace(configOf(hostileBackend), "count: 1", "count: 6", 1), hostileModel + "/1/": "",
		})
	})
	golden := filepath.Join(testkit.Root(t), "ipc", "testdata")
	frames, err := goldenFrames(golden)
	if err != nil {
		t.Fatal(err)
	}
	rest, number := v.charged(), 0
	answers := t.TempDir()
	t.Setenv(answerEnv, filepath.Join(answers, caseFile))
	for _, kind := range []ipc.Kind{ipc.Hello, ipc.Completed, ipc.Initialized, ipc.Finalized} {
		tried := 0
		for _, name := range slices.Sorted(maps.Keys(frames)) {
			if kindOf(frames[name]) != kind {
				continue
			}
			t.Run(name, func(t *testing.T) {
				for _, form := range formsOfFrame(frames[name]) {
					if number++; !sampled(number) && tried > 0 && (raceEnabled || !needed(form)) {
						continue
					}
					tried++
					writeCase(t, answers, golden, frameCase{Frame: name, Form: form})
					malformed := v.malformed(t)
					var loaded, unloaded int
					begun := time.Now()
					peak := testkit.PeakHeap(v.charged, func() {
						loaded, _ = v.try(t, hostileModel, "load")
						unloaded, _ = v.try(t, hostileModel, "unload")
					})
					v.judge(t, form, peak, fmt.Sprintf("load %d, unload %d, %v", loaded, unloaded, time.Since(begun).Round(time.Millisecond)))
					rest = v.recover(t, form, rest)
					v.unloaded(t, hostileModel)
					v.understood(t, form, malformed)
				}
			})
		}
		if tried == 0 {
			t.Errorf("no golden frame of kind %v was sent", kind)
		}
	}
}

// unloaded waits until the processes of a model have ended, because an unload does not. Their last
// frames are counted then.
func (v *victim) unloaded(t *testing.T, model string) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		index, err := v.Registry().Index(false)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(index, func(one *kserve.RepositoryIndexResponse_ModelIndex) bool {
			return one.GetName() == model && one.GetState() != "UNAVAILABLE"
		})
	})
}

var malformedBodies = regexp.MustCompile(`nereid_stub_protocol_errors_total\{rule="(?:msgpack|frame)"\} (\d+)`)

// malformed returns the number of processes that were ended because of malformed bodies.
func (v *victim) malformed(t *testing.T) (n int) {
	t.Helper()
	for _, found := range malformedBodies.FindAllSubmatch(fetch(t, "http://"+v.addresses["metrics"]+"/metrics"), -1) {
		one, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}

// understood checks that the server has decoded the worst value of a field's type.
func (v *victim) understood(t *testing.T, form string, malformed int) {
	t.Helper()
	if strings.HasSuffix(form, ": "+ofItsType) && v.malformed(t) != malformed {
		t.Errorf("%s: the server has rejected it as malformed", form)
	}
}

func writeCase(t *testing.T, directory, golden string, c frameCase) {
	t.Helper()
	text, err := json.Marshal(givenCase{c, golden})
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, caseFile), text, 0o600)
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(directory, sendingFile)), os.RemoveAll(filepath.Join(directory, sentFile)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endure makes the plugin send the frames of a case to clients that do not read.
func (v *victim) endure(t *testing.T, c frameCase, directory, golden string) {
	t.Helper()
	writeCase(t, directory, golden, c)
	const clients = 8
	var open []*http2Conn
	defer func() {
		for _, conn := range open {
			conn.close()
		}
	}()
	method := "ModelInfer"
	if c.Model == hostileStream {
		method = "ModelStreamInfer"
	}
	begun, sent := time.Now(), 0
	peak := testkit.PeakHeap(v.charged, func() {
		for client := range clients {
			conn := v.call(t, method, c.Model)
			open = append(open, conn)
			// Wait until the plugin has sent everything or its process has ended.
			found := func(name string) func() bool {
				return func() bool {
					_, err := os.Stat(filepath.Join(directory, name))
					return err == nil || conn.over()
				}
			}
			limit := flood
			if client == 0 {
				limit = patience
			}
			if !testkit.Within(limit, found(sendingFile)) {
				if client == 0 {
					t.Errorf("%s: the plugin has sent nothing", c.Form)
				}
				break // the server has stopped reading, and the plugin waits
			}
			testkit.Within(flood, found(sentFile))
			_ = os.Remove(filepath.Join(directory, sendingFile))
			if os.Remove(filepath.Join(directory, sentFile)) == nil {
				sent++
			} else {
				break // the process has ended, and the next one would too, or the server has stopped reading
			}
		}
	})
	statuses := map[string]int{}
	for _, conn := range open {
		statuses[conn.said()]++
	}
	v.judge(t, c.Form, peak, fmt.Sprintf("%d of %d floods were sent; %v, %v", sent, clients, statuses, time.Since(begun).Round(time.Millisecond)))
}

// call starts an inference whose client does not read. The caller closes the connection.
func (v *victim) call(t *testing.T, method, model string) *http2Conn {
	t.Helper()
	conn, err := dialHTTP2(v.addresses["gRPC"], true)
	if err != nil {
		t.Fatal(err)
	}
	if err = conn.headers(1, inferPath+method, ""); err == nil {
		_, err = conn.data(1, inferMessage(model), 0, method == "ModelInfer")
	}
	if err != nil {
		conn.close()
		t.Fatal(err)
	}
	return conn
}

// inferMessage returns a complete inference request for the model.
func inferMessage(model string) []byte {
	body := exampleMessage(methods()["gRPC ModelInfer"])
	body = []byte(strings.Replace(string(body), "\x04"+goodModel, string(rune(len(model)))+model, 1))
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}
