package integration

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const mixtureConfig = `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 2 } ]
`

// TestBLSRequestsMixInAllWays makes BLS requests in all ways at once: gathered, in threads, in
// executors, in event loops that end before the responses arrive, cancelled, and as streams that
// are read or dropped.
func TestBLSRequestsMixInAllWays(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, map[string]string{
				"identity/config.pbtxt": mixtureConfig,
				"identity/1/model.py": `
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
`,
				"many/config.pbtxt": mixtureConfig + "model_transaction_policy { decoupled: true }\n",
				"many/1/model.py":   manyModel,
				"mix/config.pbtxt":  mixtureConfig,
				"mix/1/model.py":    mixtureModel,
			}))
			stubs := s.stubs()
			var clients sync.WaitGroup
			for c := range 6 {
				clients.Go(func() {
					for i := range 32 {
						kind := strconv.Itoa((c + i) % 8)
						status, body := s.request("POST", "/v2/models/mix/infer", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[`+kind+`]}]}`)
						if status != http.StatusOK || !strings.Contains(body, `"data":[`+kind+`.0]`) {
							t.Errorf("kind %s: status %d: %s", kind, status, body)
							return
						}
					}
				})
			}
			clients.Wait()
			// Dropped BLS requests end without their caller. The server waits for them before it
			// stops.
			s.stop()
			s.gone(stubs)
		})
	}
}

// manyModel responds to n with n responses, sent by a thread.
const manyModel = `
import threading

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.send, args=(request.get_response_sender(), request.inputs()[0].as_numpy())).start()

    def send(self, sender, array):
        for _ in range(int(array[0])):
            sender.send(pb.InferenceResponse([pb.Tensor("OUTPUT0", array)]))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

const mixtureModel = `
import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb


def request(model, array):
    return pb.InferenceRequest(
        model_name=model, requested_output_names=["OUTPUT0"], inputs=[pb.Tensor("INPUT0", array)]
    )


def check(response, array):
    if response.has_error():
        raise pb.TritonModelException(response.error().message())
    got = response.output_tensors()[0].as_numpy()
    assert (got == array).all(), (got, array)


class TritonPythonModel:
    def initialize(self, args):
        self.pool = ThreadPoolExecutor(4)
        self.count = 0

    async def execute(self, requests):
        return [await self.answer(r) for r in requests]

    async def answer(self, r):
        kind = r.inputs()[0].as_numpy()
        self.count += 1
        array = np.full([1, 4, 5000][self.count % 3], self.count, np.float32)
        await getattr(self, "kind%d" % int(kind[0]))(array, asyncio.get_running_loop())
        return pb.InferenceResponse([pb.Tensor("OUTPUT0", kind)])

    async def kind0(self, array, loop):
        """Gathered."""
        for r in await asyncio.gather(*[request("identity", array).async_exec() for _ in range(20)]):
            check(r, array)

    async def kind1(self, array, loop):
        """A call that waits, within the loop."""
        check(request("identity", array).exec(), array)

    async def kind2(self, array, loop):
        """Every other one cancelled."""
        futures = [request("identity", array).async_exec() for _ in range(10)]
        for future in futures[::2]:
            future.cancel()
        for future in futures[1::2]:
            check(await future, array)

    async def kind3(self, array, loop):
        """A stream that is read."""
        n = np.array([37], np.float32)
        count = 0
        async for r in await request("many", n).async_exec(decoupled=True):
            if r.output_tensors():
                check(r, n)
                count += 1
        assert count == 37, count

    async def kind4(self, array, loop):
        """Threads that wait, beside the loop."""
        threads = [loop.run_in_executor(self.pool, request("identity", array).exec) for _ in range(5)]
        for r in await asyncio.gather(*threads, *[request("identity", array).async_exec() for _ in range(5)]):
            check(r, array)

    async def kind5(self, array, loop):
        """A loop that ends before all answers have come."""

        async def main():
            futures = [request("identity", array).async_exec() for _ in range(4)]
            check(await futures[0], array)

        await loop.run_in_executor(self.pool, lambda: asyncio.run(main()))

    async def kind6(self, array, loop):
        """A thread that the loop waits for without letting others run."""
        responses = []
        thread = threading.Thread(target=lambda: responses.append(request("identity", array).exec()))
        future = request("identity", array).async_exec()
        thread.start()
        thread.join()
        check(responses[0], array)
        check(await future, array)

    async def kind7(self, array, loop):
        """A stream that is dropped."""
        responses = await request("many", np.array([50], np.float32)).async_exec(decoupled=True)
        async for _ in responses:
            break
        responses.cancel()
`
