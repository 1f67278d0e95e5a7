package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const numberConfig = `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`

const decoupledConfig = numberConfig + "model_transaction_policy { decoupled: true }\n"

const sendingHead = `
import asyncio, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def answer(n):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))])

def number(request):
    return int(request.inputs()[0].as_numpy()[0])

class TritonPythonModel:
`

// countModel sends the numbers up to its input. For a negative input it never responds, or fails
// after one response.
const countModel = sendingHead + `
    def execute(self, requests):
        for request in requests:
            n = number(request)
            if n == -1:
                continue
            if n == -2:
                request.get_response_sender().send(answer(0))
                raise ValueError("no more")
            threading.Thread(target=self.run, args=(request.get_response_sender(), n)).start()

    def run(self, sender, n):
        for i in range(n):
            sender.send(answer(i))
        sender.send(flags=FINAL)
`

// onceModel has one response, which it sends, returns, or both.
const onceModel = sendingHead + `
    def execute(self, requests):
        (request,) = requests
        n = number(request)
        sender = request.get_response_sender()
        if n == 0:
            sender.send(answer(n), FINAL)
            return None
        if n == 1:
            sender.send(answer(n))
            return [answer(n)]
        if n == 5:
            sender.send(answer(n))
            sender.send(flags=FINAL)
            return [None]
        if n == 6:
            sender.send(answer(n))
            return [None]
        return [answer(n)]
`

// TestDecoupledResponsesReachTheRealClient checks the responses that the real client receives from
// decoupled and other senders, on the oldest and the newest Python.
func TestDecoupledResponsesReachTheRealClient(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, map[string]string{
				"count/config.pbtxt": decoupledConfig, "count/1/model.py": countModel,
				"once/config.pbtxt": numberConfig, "once/1/model.py": onceModel,
			}))
			s.runClient("decoupled.py", "rules")
		})
	}
}

// TestLongStreamCostsNoMemory sends a long stream to a client that is slower than the model. The
// memory of the server and the stub must not grow.
func TestLongStreamCostsNoMemory(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"count/config.pbtxt": decoupledConfig, "count/1/model.py": countModel,
	}))
	count := "100000"
	if !testkit.Long() {
		count = "10000"
	}
	s.runClient("decoupled.py", "slow", "1000")
	stub := s.stubs()[0]
	before := [2]int64{testkit.ResidentBytes(t, s.cmd.Process.Pid), testkit.ResidentBytes(t, stub)}
	s.runClient("decoupled.py", "slow", count)
	after := [2]int64{testkit.ResidentBytes(t, s.cmd.Process.Pid), testkit.ResidentBytes(t, stub)}
	for i, what := range []string{"server", "stub"} {
		if grown := after[i] - before[i]; grown > 48<<20 {
			t.Errorf("%s grew by %d bytes, from %d", what, grown, before[i])
		}
	}
}

// TestModelsSeeThatClientsLeave checks that models soon see that their client has disconnected,
// over each protocol.
func TestModelsSeeThatClientsLeave(t *testing.T) {
	directory := t.TempDir()
	waiting := func(body string) string {
		return sendingHead + strings.ReplaceAll(body, "DIRECTORY", strconv.Quote(directory))
	}
	write := `
    def write(self, name):
        with open(os.path.join(DIRECTORY, name + ".new"), "w") as file:
            file.write(str(time.time()))
        os.rename(os.path.join(DIRECTORY, name + ".new"), os.path.join(DIRECTORY, name))
`
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"waits/config.pbtxt": numberConfig, "waits/1/model.py": waiting(write + `
    def execute(self, requests):
        self.write("begun")
        while not requests[0].is_cancelled():
            time.sleep(0.001)
        self.write("seen")
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED))]
`),
		"waits_decoupled/config.pbtxt": decoupledConfig, "waits_decoupled/1/model.py": waiting(write + `
    def execute(self, requests):
        threading.Thread(target=self.run, args=(requests[0].get_response_sender(),)).start()

    def run(self, sender):
        sender.send(answer(1))
        self.write("begun")
        while not sender.is_cancelled():
            time.sleep(0.001)
        self.write("seen")
        sender.send(flags=FINAL)
`),
		"waits_async/config.pbtxt": decoupledConfig, "waits_async/1/model.py": waiting(write + `
    async def execute(self, requests):
        sender = requests[0].get_response_sender()
        self.write("begun")
        await sender.cancelled()
        self.write("seen")
        sender.send(flags=FINAL)
`),
	}))
	read := func(name string) float64 {
		text, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, how := range []string{"http", "unary", "stream", "async"} {
		s.runClient("decoupled.py", "leave", how, directory)
		s.until(how+": the model has seen it", func() bool {
			_, err := os.Stat(filepath.Join(directory, "seen"))
			return err == nil
		})
		late := time.Duration((read("seen") - read("left")) * float64(time.Second))
		t.Logf("%s: seen after %v", how, late)
		// This takes a few milliseconds on an idle machine.
		if late > slack/2 {
			t.Errorf("%s: the model has seen that its client left after %v", how, late)
		}
		for _, name := range []string{"begun", "seen", "left"} {
			if err := os.Remove(filepath.Join(directory, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnloadWaitsForStreams unloads a model that is still sending. The client must receive the
// whole stream before the model is unloaded.
func TestUnloadWaitsForStreams(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"count/config.pbtxt": decoupledConfig, "count/1/model.py": strings.Replace(countModel, "sender.send(answer(i))", "sender.send(answer(i)); time.sleep(0.005)", 1),
	}), "--model-control-mode=explicit", "--load-model=count")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.runClient("decoupled.py", "slow", "400")
	}()
	s.until("the request is being answered", func() bool {
		_, metrics := s.request("GET", "/v2/models/count/stats", "")
		return strings.Contains(metrics, `"execution_count":1`)
	})
	if status, body := s.request("POST", "/v2/repository/models/count/unload", ""); status != http.StatusOK {
		t.Errorf("unload: status %d: %s", status, body)
	}
	<-ended
	s.until("the model is unloaded", func() bool { return s.index()["count"].State == "UNAVAILABLE" })
}
