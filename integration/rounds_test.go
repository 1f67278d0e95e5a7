package integration

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// roundsModel executes a request as often as its input says, and returns the flags and the
// correlation id of each execution. A negative input fails in the second execution.
const roundsModel = `
import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self.seen = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            rounds = int(pb_utils.get_input_tensor_by_name(request, "ROUNDS").as_numpy()[0])
            seen = self.seen.setdefault(request.request_id(), [])
            seen.append([request.flags(), request.correlation_id()])
            response = None
            if len(seen) == 2 and rounds < 0:
                raise ValueError("in the second round")
            text = json.dumps(seen)
            if len(seen) < abs(rounds):
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                text = f"round {len(seen)}"
            else:
                del self.seen[request.request_id()]
            output = [pb_utils.Tensor("SEEN", np.array([text.encode()], dtype=np.object_))]
            if self.decoupled:
                last = not text.startswith("round")
                request.get_response_sender().send(
                    pb_utils.InferenceResponse(output), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)
            elif not text.startswith("round"):
                response = pb_utils.InferenceResponse(output)
            responses.append(response)
        return None if self.decoupled else responses
`

func roundsConfig(more string) string {
	return `backend: "python"
input [ { name: "ROUNDS" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
` + more
}

// TestRescheduledRequestsComeAgain checks models that reschedule their requests, with and without
// an iterative sequence, and their errors in the log.
func TestRescheduledRequestsComeAgain(t *testing.T) {
	const iterative = "sequence_batching { iterative_sequence: true }\n"
	const decoupled = "model_transaction_policy { decoupled: true }\n"
	files := map[string]string{}
	for model, more := range map[string]string{
		"iterative": iterative, "stream": iterative + decoupled, "plain": "", "plain_stream": decoupled,
	} {
		files[model+"/config.pbtxt"] = roundsConfig(more)
		files[model+"/1/model.py"] = roundsModel
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, files))
			s.runClient("rounds.py")
			for _, want := range []string{
				"Failed to release request: Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.",
				"Failed to release request: inference request for sequence 9 to model 'iterative' must specify the START flag on the first request of the sequence",
			} {
				if !s.prints(want) {
					t.Errorf("the log does not contain %q", want)
				}
			}
		})
	}
}

// TestCallsInTheBackground checks that a decoupled model with one instance can call itself in the
// background, directly and through another model.
func TestCallsInTheBackground(t *testing.T) {
	testkit.Story(t)
	files := map[string]string{
		"a/config.pbtxt": callingConfig("1"),
		"a/1/model.py":   callingModel,
	}
	for _, name := range []string{"threads", "coroutines"} {
		files[name+"/config.pbtxt"] = callingConfig("1") + "model_transaction_policy { decoupled: true }\n"
		files[name+"/1/model.py"] = callingModel + backgroundModel[name]
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files))
	s.runClient("background.py")
}

// backgroundModel are decoupled models that respond after execute has returned.
var backgroundModel = map[string]string{
	"threads": `
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.later, args=(request, request.get_response_sender())).start()

    def later(self, request, sender):
        got = text(json.dumps(self.answer(request)))
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", got)]), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`,
	"coroutines": `
    async def execute(self, requests):
        for request in requests:
            plan = json.loads(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
            got = [await self.one(c) for c in plan.get("calls", [])]
            got = {self.name: got} if got else self.name
            request.get_response_sender().send(
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text(json.dumps(got)))]),
                pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def one(self, call):
        loop = asyncio.get_running_loop()
        responses = await self.make(call).async_exec(decoupled=True)
        got = await loop.run_in_executor(None, list, responses)
        return [result(r) for r in got if r.has_error() or r.output_tensors()][0]
`,
}

// TestCallBesideAnUnreadStream reads the beginning of a stream from a model with one instance, and
// then calls that model again. The unread responses must be kept until they are read, as on Triton.
func TestCallBesideAnUnreadStream(t *testing.T) {
	const config = `backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
`
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"reads/config.pbtxt": config,
		"reads/1/model.py": misbehavingHead + `
def begin(count):
    tensor = pb_utils.Tensor("INPUT0", np.array([count], np.float32))
    return pb_utils.InferenceRequest(
        model_name="counts", inputs=[tensor], requested_output_names=["OUTPUT0"]).exec(decoupled=True)


class TritonPythonModel:
    def execute(self, requests):
        stream = begin(5000)
        got = [next(stream)] + list(begin(3)) + list(stream)
        got = [r.output_tensors()[0].as_numpy()[0] for r in got if r.output_tensors()]
        assert got == [0, 0, 1, 2] + list(range(1, 5000)), got
        return answer(requests)
`,
		"counts/config.pbtxt": config + "model_transaction_policy { decoupled: true }\n",
		"counts/1/model.py": misbehavingHead + `
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(int(request.inputs()[0].as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([i], np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`,
	}))
	if status, text := s.infer("reads", 7); status != 200 {
		t.Errorf("status %d: %s", status, text)
	}
}
