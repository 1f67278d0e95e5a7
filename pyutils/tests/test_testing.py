"""nereid_testing: models in unit tests, without a server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any, Iterator

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from nereid_testing import Fault, Server, outputs

DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def out(array: Any, name: str = "OUT") -> pb_utils.InferenceResponse:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.asarray(array))])


def error_of(response: pb_utils.InferenceResponse) -> pb_utils.TritonError:
    error = response.error()
    assert error is not None
    return error


def first(request: pb_utils.InferenceRequest) -> Any:
    return request.inputs()[0].as_numpy()


def ask(name: str, decoupled: bool = False, **more: Any) -> Any:
    given: Any = {"inputs": [pb_utils.Tensor("IN", np.arange(3))], "requested_output_names": [], "model_name": name}
    return pb_utils.InferenceRequest(**{**given, **more}).exec(decoupled=decoupled)


class Double:
    """A typical model."""

    def execute(self, requests: Any) -> Any:
        return [out(first(request) * 2) for request in requests]


class Tell:
    """Describes its requests."""

    def initialize(self, args: dict[str, str]) -> None:
        self.args = args

    def execute(self, requests: Any) -> Any:
        responses = []
        for request in requests:
            told = {
                "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "parameters": request.parameters(),
                "names": sorted(request.requested_output_names()), "cancelled": request.is_cancelled(),
                "trace": request.trace().get_context(),
            }  # fmt: skip
            responses.append(out(np.array([json.dumps(told)], np.object_)))
        return responses


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as entered:
        yield entered


class TestRequests:
    def test_arrays_go_there_and_back(self, server: Server) -> None:
        given = np.arange(4, dtype=np.int32)
        response = server.load(Double).infer({"IN": given})
        got = outputs(response)["OUT"]
        assert got.tolist() == [0, 2, 4, 6] and got.dtype == np.int32

    def test_lists_have_the_type_of_the_config(self, server: Server) -> None:
        config = {"input": [{"name": "IN", "data_type": "TYPE_FP16", "dims": [2]}]}
        assert outputs(server.load(Double, config).infer({"IN": [1, 2]}))["OUT"].dtype == np.float16

    def test_strings_are_bytes(self, server: Server) -> None:
        class Upper:
            def execute(self, requests: Any) -> Any:
                (given,) = first(requests[0])
                assert type(given) is bytes
                return [out(np.array([given.decode().upper(), "ß"], np.object_))]

        for given in (["a"], np.array(["a"]), np.array([b"a"]), np.array(["a"], np.object_)):
            assert outputs(server.load(Upper).infer({"IN": given}))["OUT"].tolist() == [b"A", "ß".encode()]

    def test_inputs_are_the_model_s_own(self, server: Server) -> None:
        class Change:
            def execute(self, requests: Any) -> Any:
                first(requests[0])[:] = 7
                return [out(first(requests[0]))]

        given = np.zeros(2)
        assert outputs(server.load(Change).infer({"IN": given}))["OUT"].tolist() == [7, 7]
        assert given.tolist() == [0, 0]

    def test_all_of_a_request(self, server: Server) -> None:
        config = {"output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}, {"name": "B"}]}
        model = server.load(Tell, config)
        response = model.infer(
            {}, request_id="é", correlation_id="seq", flags=3, timeout=5, parameters={"a": 1, "b": 0.5}, trace="{}"
        )
        assert json.loads(outputs(response)["OUT"][0]) == {
            "id": "é", "correlation": "seq", "flags": 3, "timeout": 5, "parameters": '{"a":1,"b":0.5}',
            "names": ["B", "OUT"], "cancelled": False, "trace": "{}",
        }  # fmt: skip

    def test_requested_outputs(self, server: Server) -> None:
        class Both:
            def execute(self, requests: Any) -> Any:
                tensors = [pb_utils.Tensor(name, np.zeros(1)) for name in ("A", "B")]
                return [pb_utils.InferenceResponse(tensors) for _ in requests]

        model = server.load(Both)
        assert set(outputs(model.infer({}))) == {"A", "B"}
        assert set(outputs(model.infer({}, outputs=["B"]))) == {"B"}
        known = server.load(Both, {"output": [{"name": "A"}]})
        with pytest.raises(Fault, match=r"^output 'B' is not in the configuration of model 'model', whose outputs are 'A'$"):
            known.infer({})  # a server does not send it, and only logs this

    @pytest.mark.parametrize(
        ("batches", "declared", "array", "want"),
        [
            (0, {"data_type": "TYPE_FP32", "dims": [-1, 2]}, np.zeros((3, 2), np.float32), ""),
            (0, {"data_type": "TYPE_FP32", "dims": [2]}, np.zeros(2), "TYPE_FP64 with shape [2], want TYPE_FP32 with dims [2]"),
            (0, {"data_type": "TYPE_FP64", "dims": [2]}, np.zeros(3), "TYPE_FP64 with shape [3], want TYPE_FP64 with dims [2]"),
            (0, {"data_type": "TYPE_FP64", "dims": [2]}, np.zeros((1, 2)), "TYPE_FP64 with shape [1, 2], want TYPE_FP64 with dims [2]"),
            (4, {"data_type": "TYPE_FP64", "dims": [2]}, np.zeros((1, 2)), ""),
            (4, {"data_type": "TYPE_FP64", "dims": [2]}, np.zeros(2), "want TYPE_FP64 with dims [2] after the batch dimension"),
            (0, {"data_type": "TYPE_FP64", "dims": [1], "reshape": {"shape": []}}, np.zeros(()), ""),
            (0, {"data_type": "TYPE_STRING", "dims": [1]}, np.array(["a"], np.object_), ""),
        ],
    )
    def test_outputs_are_as_configured(
        self, server: Server, batches: int, declared: dict[str, Any], array: np.ndarray, want: str
    ) -> None:
        class Odd:
            def execute(self, requests: Any) -> Any:
                return [out(array) for _ in requests]

        model = server.load(Odd, {"max_batch_size": batches, "output": [{"name": "OUT", **declared}]})
        if not want:
            model.infer({})
            return
        with pytest.raises(Fault) as caught:
            model.infer({})
        assert str(caught.value).startswith("output 'OUT' of model 'model' is ") and want in str(caught.value)

    def test_odd_outputs_that_are_sent(self, server: Server) -> None:
        class Sends:
            def execute(self, requests: Any) -> None:
                sender = requests[0].get_response_sender()
                sender.send(out([1.0], "OTU"))
                sender.send(flags=FINAL)

        model = server.load(Sends, {**DECOUPLED, "output": [{"name": "OUT", "data_type": "TYPE_FP64", "dims": [1]}]})
        with pytest.raises(Fault, match="output 'OTU' is not in the configuration"):
            model.stream({})

    def test_misspelt_names(self, server: Server) -> None:
        config = {
            "input": [{"name": name, "data_type": "TYPE_FP32", "dims": [1]} for name in ("IN", "MORE")],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
        }
        model = server.load(Double, config)
        with pytest.raises(Fault, match=r"^unexpected inference input 'INN' for model 'model', whose inputs are 'IN', 'MORE'$"):
            model.infer({"INN": [1]})
        with pytest.raises(Fault, match="unexpected inference input 'INN'"):
            model.infer([pb_utils.Tensor("INN", np.ones(1))])
        with pytest.raises(Fault, match=r"^unexpected inference output 'OTU' for model 'model', whose outputs are 'OUT'$"):
            model.infer({"IN": [1]}, outputs=["OTU"])
        assert outputs(model.infer({"IN": [1]}, outputs=["OUT"]))["OUT"].tolist() == [2]

    def test_batches_are_answered_in_order(self, server: Server) -> None:
        model = server.load(Double)
        requests = [model.request({"IN": [n]}, request_id=str(n)) for n in range(3)]
        got = [outputs(response)["OUT"].tolist() for (response,) in model.execute(requests)]
        assert got == [[0], [2], [4]]
        assert model.execute(requests)  # requests can be executed again

    def test_requests_of_the_test_s_own(self, server: Server) -> None:
        made = pb_utils.InferenceRequest(
            inputs=[pb_utils.Tensor("IN", np.ones(1))], requested_output_names=[], model_name="any"
        )
        assert outputs(server.load(Double).execute([made])[0][0])["OUT"].tolist() == [2]

    def test_outputs_are_copies(self, server: Server) -> None:
        class Reuse:
            def execute(self, requests: Any) -> None:
                buffer = np.zeros(1)
                sender = requests[0].get_response_sender()
                for n in range(3):
                    buffer[:] = n
                    sender.send(out(buffer))
                sender.send(flags=FINAL)

        responses = server.load(Reuse, DECOUPLED).stream({})
        assert [outputs(response)["OUT"].tolist() for response in responses] == [[0], [1], [2]]

    def test_no_end(self, server: Server) -> None:
        class Keep:
            def execute(self, requests: Any) -> None:
                self.sender = requests[0].get_response_sender()
                self.sender.send(out([1]))

        model = server.load(Keep, DECOUPLED)
        with pytest.raises(TimeoutError, match=r"^request 'x': no final flag within 0.1 s, after 1 responses$"):
            model.execute([model.request({}, request_id="x")], seconds=0.1)

    def test_errors_keep_their_code(self, server: Server) -> None:
        class Refuse:
            def execute(self, _requests: Any) -> Any:
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND))]

        response = server.load(Refuse).infer({})
        assert error_of(response).message() == "no" and error_of(response).code() == pb_utils.TritonError.NOT_FOUND
        with pytest.raises(AssertionError, match="the response is an error, NOT_FOUND: no"):
            outputs(response)

    def test_exceptions_come_through(self, server: Server) -> None:
        class Fail:
            def execute(self, _requests: Any) -> Any:
                raise ValueError("boo")

        with pytest.raises(ValueError, match="^boo$"):
            server.load(Fail).infer({})

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            ((), "Expected a list in the execute return, found type '<class 'tuple'>'."),
            ([], "Number of InferenceResponse objects do not match the number of InferenceRequest objects."),
            ([5], "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
        ],
    )  # fmt: skip
    def test_faults_of_the_model_raise(self, server: Server, result: Any, text: str) -> None:
        class Wrong:
            def execute(self, _requests: Any) -> Any:
                return result

        with pytest.raises(Fault) as raised:
            server.load(Wrong).infer({})
        assert str(raised.value).startswith(text)

    def test_no_execute(self, server: Server) -> None:
        with pytest.raises(Fault, match="does not implement `execute` method"):
            server.load(type("Lazy", (), {})).infer({})

    @pytest.mark.parametrize("result", [None, [None]])
    def test_no_answer(self, server: Server, result: Any) -> None:
        class Silent:
            def execute(self, _requests: Any) -> Any:
                return result

        assert error_of(server.load(Silent).infer({})).message() == (
            "Failed to process the request(s) for model 'model_0', message: "
            "execute returned no response for this request, and none was sent."
        )


class TestSenders:
    def test_responses_of_a_thread(self, server: Server) -> None:
        class Repeat:
            def execute(self, requests: Any) -> None:
                for request in requests:
                    threading.Thread(target=self.send, args=(request.get_response_sender(), first(request))).start()

            def send(self, sender: Any, numbers: Any) -> None:
                for number in numbers:
                    sender.send(out([number]))
                sender.send(flags=FINAL)

        responses = server.load(Repeat, DECOUPLED).stream({"IN": [3, 1]})
        assert [outputs(response)["OUT"].tolist() for response in responses] == [[3], [1]]

    def test_no_responses(self, server: Server) -> None:
        class Nothing:
            def execute(self, requests: Any) -> None:
                requests[0].get_response_sender().send(flags=FINAL)

        assert server.load(Nothing, DECOUPLED).stream({}) == []

    def test_dropped_sender_ends_with_an_error(self, server: Server) -> None:
        class Drop:
            def execute(self, requests: Any) -> None:
                requests[0].get_response_sender().send(out([1]))

        one, error = server.load(Drop, DECOUPLED).stream({})
        assert outputs(one) and error_of(error).message().endswith(
            "message: the response sender was dropped before it had sent the final flag."
        )

    def test_state_rules(self, server: Server) -> None:
        class Twice:
            def execute(self, requests: Any) -> None:
                sender = requests[0].get_response_sender()
                sender.send(out([1]), FINAL)
                sender.send(out([1]))

        with pytest.raises(pb_utils.TritonModelException, match="cannot send more than one response"):
            server.load(Twice).infer({})
        with pytest.raises(pb_utils.TritonModelException, match="Response sender has been closed"):
            server.load(Twice, DECOUPLED).infer({})

    def test_sender_of_an_ordinary_model(self, server: Server) -> None:
        class Send:
            def execute(self, requests: Any) -> None:
                requests[0].get_response_sender().send(out([1]), FINAL)

        assert outputs(server.load(Send).infer({}))["OUT"].tolist() == [1]

    def test_results_of_decoupled_models(self, server: Server) -> None:
        with pytest.raises(Fault, match="is using the decoupled mode and the execute function must return None"):
            server.load(Double, DECOUPLED).stream({"IN": [1]})

    def test_cancellation_reaches_the_model(self, server: Server) -> None:
        class Patient:
            def execute(self, requests: Any) -> None:
                (request,) = requests
                sender = request.get_response_sender()
                for n in range(100):
                    if request.is_cancelled():
                        error = pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)
                        sender.send(pb_utils.InferenceResponse(error=error), FINAL)
                        return
                    sender.send(out([n]))

        model = server.load(Patient, DECOUPLED)
        responses = model.stream({}, cancel_after=3)
        assert len(responses) == 4 and error_of(responses[-1]).code() == pb_utils.TritonError.CANCELLED
        request = model.request({})
        model.cancel(request)
        assert len(model.execute([request])[0]) == 1

    def test_cancellation_from_another_thread(self, server: Server) -> None:
        class Wait:
            started = threading.Event()

            def execute(self, requests: Any) -> Any:
                self.started.set()
                while not requests[0].is_cancelled():
                    time.sleep(0.001)
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError("gone"))]

        model = server.load(Wait)
        request = model.request({})

        def cancel() -> None:
            Wait.started.wait()
            model.cancel(request)

        thread = threading.Thread(target=cancel)
        thread.start()
        assert error_of(model.execute([request])[0][0]).message() == "gone"
        thread.join()

    def test_execute_called_by_the_test(self, server: Server) -> None:
        class Send:
            def execute(self, requests: Any) -> None:
                requests[0].get_response_sender().send(out([1]))

        model = server.load(Send, DECOUPLED)
        request = model.request({})
        assert model.instance.execute([request]) is None
        assert [outputs(response)["OUT"].tolist() for response in server.responses(request)] == [[1]]

    def test_rescheduled_requests_come_again(self, server: Server) -> None:
        class Again:
            rounds = 0

            def execute(self, requests: Any) -> Any:
                self.rounds += 1
                self.flags = requests[0].flags()
                if self.rounds < 2000:
                    requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                    return [None]
                return [out([self.rounds])]

        model = server.load(Again)
        assert outputs(model.infer({}, flags=1))["OUT"].tolist() == [2000] and model.instance.flags == 0


class TestCoroutines:
    def test_execute_may_be_a_coroutine(self, server: Server) -> None:
        class Async:
            async def execute(self, requests: Any) -> Any:
                await asyncio.sleep(0)
                return [out(first(request)) for request in requests]

        assert outputs(server.load(Async).infer({"IN": [1]}))["OUT"].tolist() == [1]

    def test_coroutines_may_send(self, server: Server) -> None:
        class Async:
            async def execute(self, requests: Any) -> None:
                sender = requests[0].get_response_sender()
                for n in range(3):
                    await asyncio.sleep(0)
                    sender.send(out([n]))
                sender.send(flags=FINAL)

        assert len(server.load(Async, DECOUPLED).stream({})) == 3

    @pytest.mark.parametrize("config", [{}, DECOUPLED])
    def test_exceptions_come_through(self, server: Server, config: Any) -> None:
        class Async:
            async def execute(self, _requests: Any) -> None:
                raise ValueError("boo")

        with pytest.raises(ValueError, match="boo"):
            server.load(Async, config).infer({})

    def test_the_loop_ends_with_the_model(self) -> None:
        class Async:
            async def execute(self, requests: Any) -> Any:
                self.task = asyncio.ensure_future(asyncio.sleep(1000))
                return [out(first(requests[0]))]

        threads = threading.active_count()
        with Server({"other": Async()}) as server:
            model = server.load(Async)
            model.infer({"IN": [1]})
            ask("other")
        assert model.instance.task.cancelled() and threading.active_count() == threads

    def test_is_ready(self, server: Server) -> None:
        class Ready(Double):
            ready: Any = True

            async def is_ready(self) -> Any:
                return self.ready

        model = server.load(Ready)
        assert model.is_ready() is True and server.load(Double).is_ready() is True
        model.instance.ready = 1
        with pytest.raises(Fault, match=r"is_ready\(\) must return a boolean value"):
            model.is_ready()
