"""nereid_testing: models in unit tests, without a server."""

from __future__ import annotations

import asyncio
import json
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from c_python_backend_utils import runtime
from nereid_testing import Fault, Histogram, Server, outputs
from nereid_testing.config import BadConfig, fill, parse

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


class Double:
    """A model of the usual kind."""

    def execute(self, requests: Any) -> Any:
        return [out(first(request) * 2) for request in requests]


class Tell:
    """Says what it has been given."""

    def initialize(self, args: dict[str, str]) -> None:
        self.args = args

    def execute(self, requests: Any) -> Any:
        responses = []
        for request in requests:
            told = {
                "id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(),
                "timeout": request.timeout(), "parameters": request.parameters(),
                "names": sorted(request.requested_output_names()), "cancelled": request.is_cancelled(),
            }  # fmt: skip
            responses.append(out(np.array([json.dumps(told)], np.object_)))
        return responses


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as entered:
        yield entered


class TestRequests:
    def test_arrays(self, server: Server) -> None:
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
            {}, request_id="é", correlation_id="seq", flags=3, timeout=5, parameters={"a": 1, "b": [0.5][0]}
        )
        assert json.loads(outputs(response)["OUT"][0]) == {
            "id": "é", "correlation": "seq", "flags": 3, "timeout": 5, "parameters": '{"a":1,"b":0.5}',
            "names": ["B", "OUT"], "cancelled": False,
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
        assert set(outputs(known.infer({}))) == {"A"}  # what the config does not have is never sent

    def test_batches(self, server: Server) -> None:
        model = server.load(Double)
        requests = [model.request({"IN": [n]}, request_id=str(n)) for n in range(3)]
        got = [outputs(response)["OUT"].tolist() for (response,) in model.execute(requests)]
        assert got == [[0], [2], [4]]
        assert model.execute(requests)  # they may be used again

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

    def test_errors(self, server: Server) -> None:
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
    def test_faults(self, server: Server, result: Any, text: str) -> None:
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

    def test_dropped(self, server: Server) -> None:
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

    def test_cancellation(self, server: Server) -> None:
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

    def test_rescheduled(self, server: Server) -> None:
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
    def test_ordinary(self, server: Server) -> None:
        class Async:
            async def execute(self, requests: Any) -> Any:
                await asyncio.sleep(0)
                return [out(first(request)) for request in requests]

        assert outputs(server.load(Async).infer({"IN": [1]}))["OUT"].tolist() == [1]

    def test_decoupled(self, server: Server) -> None:
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


def ask(name: str, decoupled: bool = False, **more: Any) -> Any:
    given: Any = {"inputs": [pb_utils.Tensor("IN", np.arange(3))], "requested_output_names": [], "model_name": name}
    return pb_utils.InferenceRequest(**{**given, **more}).exec(decoupled=decoupled)


class TestOtherModels:
    def test_functions(self) -> None:
        def square(request: pb_utils.InferenceRequest) -> Any:
            return {"OUT": first(request) ** 2, "MORE": [1]}

        with Server({"square": square}) as server:
            assert set(outputs(ask("square"))) == {"OUT", "MORE"}
            assert outputs(ask("square", requested_output_names=["OUT"]))["OUT"].tolist() == [0, 1, 4]
            assert outputs(ask("square", request_id="7", parameters={"a": 1}))
            request = server.asked[-1]
            assert request.request_id() == "7" and request.parameters() == '{"a": 1}' and len(server.asked) == 3

    def test_name_as_bytes(self) -> None:
        with Server({"m": lambda _: {}}):
            assert not ask(b"m").has_error()  # type: ignore[arg-type]

    def test_errors(self) -> None:
        def refuse(_: Any) -> Any:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no", pb_utils.TritonError.CANCELLED))

        def fail(_: Any) -> Any:
            raise pb_utils.TritonModelException("boo")

        with Server({"refuse": refuse, "fail": fail, "double": Double(), "broken": lambda _: 5}):
            assert ask("refuse").error().code() == pb_utils.TritonError.CANCELLED
            assert ask("refuse").parameters() == "" and ask("double").parameters() == "{}"
            assert ask("fail").error().message() == (
                "Failed to process the request(s) for model 'fail_0', message: TritonModelException: boo"
            )
            assert ask("nobody").error().message() == (
                "Model nobody - Error when running inference: Request for unknown model: 'nobody' is not found"
            )
            with pytest.raises(Fault, match="stand-in gave int"):
                ask("broken")

    def test_models(self) -> None:
        with Server({"class": Double, "instance": Double()}):
            for name in ("class", "instance"):
                assert outputs(ask(name))["OUT"].tolist() == [0, 2, 4]

    def test_streams(self) -> None:
        def count(request: pb_utils.InferenceRequest) -> Any:
            for n in first(request):
                yield out([n])

        def listed(request: pb_utils.InferenceRequest) -> Any:
            return [{"OUT": [n]} for n in first(request)]

        class Repeat:
            def execute(self, requests: Any) -> None:
                sender = requests[0].get_response_sender()
                for n in first(requests[0]):
                    sender.send(out([n]))
                sender.send(flags=FINAL)

        with Server({"count": count, "listed": listed}) as server:
            server.models["repeat"] = server.load(Repeat, DECOUPLED)
            for name, empty in (("count", 1), ("listed", 0), ("repeat", 1)):
                assert "is using the decoupled" in ask(name).error().message()
                responses = list(ask(name, decoupled=True))
                assert [outputs(r)["OUT"].tolist() for r in responses if r.output_tensors()] == [[0], [1], [2]]
                assert [r.parameters() for r in responses] == ["{}"] * 3 + [""] * empty
            assert len(list(ask("nobody", decoupled=True))) == 1

    def test_cancelled_streams(self) -> None:
        def endless(request: pb_utils.InferenceRequest) -> Any:
            while not request.is_cancelled():
                yield {"OUT": [1]}

        with Server({"endless": endless}):
            responses = ask("endless", decoupled=True)
            next(responses)
            responses.cancel()
            assert [len(response.output_tensors()) for response in responses] == [0]

    def test_coroutines(self) -> None:
        async def later(request: pb_utils.InferenceRequest) -> Any:
            await asyncio.sleep(0)
            return {"OUT": first(request) + 1}

        class Caller:
            async def execute(self, requests: Any) -> Any:
                made = pb_utils.InferenceRequest(
                    inputs=requests[0].inputs(), requested_output_names=[], model_name="later"
                )
                one, two = await asyncio.gather(made.async_exec(), made.async_exec(decoupled=False))
                assert isinstance(one, pb_utils.InferenceResponse) and isinstance(two, pb_utils.InferenceResponse)
                return [out(outputs(one)["OUT"] + outputs(two)["OUT"])]

        with Server({"later": later}) as server:
            assert outputs(server.load(Caller).infer({"IN": [1, 2]}))["OUT"].tolist() == [4, 6]
            with pytest.raises(RuntimeError, match="no running event loop"):
                pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="later").async_exec()

    def test_only_while_serving(self) -> None:
        class Early:
            def initialize(self, _args: Any) -> None:
                ask("square")

        with Server({"square": lambda _: {}}) as server:
            with pytest.raises(pb_utils.TritonModelException, match="^BLS is only supported during the 'execute' func"):
                server.load(Early)
            assert server.load(Double)


class TestControl:
    def test_loading(self) -> None:
        with Server({"a": lambda _: {}, "b": lambda _: {}}, unloaded=("b",)) as server:
            assert pb_utils.is_model_ready("a") is True and pb_utils.is_model_ready("b", "1") is False
            assert "Model 'b' is not ready." in ask("b").error().message()
            pb_utils.load_model("b", config="{}", files={"file:x": b"y"})
            assert server.loads[0].model == "b" and server.loads[0].files == {"file:x": b"y"}
            assert not ask("b").has_error()
            pb_utils.unload_model("a")
            assert pb_utils.is_model_ready("a") is False
            pb_utils.unload_model("nobody")
            with pytest.raises(pb_utils.TritonModelException, match="Failed to load model: .*failed to poll from model"):
                pb_utils.load_model("nobody")
            with pytest.raises(pb_utils.TritonModelException, match="Request for unknown model: 'nobody' is not found"):
                pb_utils.is_model_ready("nobody")


class TestMetrics:
    def test_values(self, server: Server) -> None:
        counter = pb_utils.MetricFamily("requests", "Requests", pb_utils.MetricFamily.COUNTER)
        again = pb_utils.MetricFamily("requests", "Other", pb_utils.MetricFamily.COUNTER)
        counter.Metric(labels={"a": "b"}).increment(2)
        again.Metric(labels={"a": "b"}).increment(0.5)
        counter.Metric().increment(1)
        assert server.metric("requests", {"a": "b"}) == 2.5 and server.metric("requests") == 1
        assert counter.Metric().value() == 1
        gauge = pb_utils.MetricFamily("level", "Level", pb_utils.MetricFamily.GAUGE)
        gauge.Metric().set(-3)
        assert server.metric("level") == -3
        with pytest.raises(KeyError, match="no metric family 'other'"):
            server.metric("other")
        with pytest.raises(KeyError, match="has no metric with labels"):
            server.metric("level", {"a": "b"})

    def test_histograms(self, server: Server) -> None:
        family = pb_utils.MetricFamily("size", "Size", pb_utils.MetricFamily.HISTOGRAM)
        metric = family.Metric(buckets=[1, 10])
        for value in (0.5, 1, 5, 100):
            metric.observe(value)
        assert server.metric("size") == Histogram(4, 106.5, {1: 2, 10: 3, float("inf"): 4})

    @pytest.mark.usefixtures("server")
    def test_refusals(self) -> None:
        family = pb_utils.MetricFamily("a", "A", pb_utils.MetricFamily.COUNTER)
        with pytest.raises(pb_utils.TritonModelException, match="Family name already exists with different type"):
            pb_utils.MetricFamily("a", "A", pb_utils.MetricFamily.GAUGE)
        with pytest.raises(pb_utils.TritonModelException, match="does not support Set"):
            family.Metric().set(1)

    def test_the_end_of_a_family(self, server: Server) -> None:
        family = pb_utils.MetricFamily("a", "A", pb_utils.MetricFamily.COUNTER)
        family.Metric().increment(1)
        del family
        with pytest.raises(KeyError):
            server.metric("a")


class TestLife:
    def test_args(self, server: Server) -> None:
        config = {"parameters": {"k": "v"}, "instance_group": [{"kind": "KIND_GPU", "gpus": [2]}]}
        model = server.load(Tell, config, name="m", version=3, directory="/models/m")
        given = dict(model.instance.args)
        assert pb_utils.get_model_dir() == "/models/m/3"
        read = json.loads(given.pop("model_config"))
        assert read["name"] == "m" and read["input"] == [] and read["parameters"]["k"]["string_value"] == "v"
        assert given == {
            "model_instance_kind": "GPU", "model_instance_name": "m_0_0", "model_instance_device_id": "2",
            "model_repository": "/models/m", "model_version": "3", "model_name": "m",
        }  # fmt: skip

    def test_finalize(self) -> None:
        ends: list[int] = []

        class Ends(Double):
            def __init__(self) -> None:
                self.number = len(ends)

            def finalize(self) -> None:
                ends.append(self.number)

        before = runtime.current()
        with Server() as server:
            model, _ = server.load(Ends), server.load(Ends)
            model.finalize()
            assert len(ends) == 1
        assert len(ends) == 2 and runtime.current() is before

    def test_logs(self, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
        pb_utils.Logger.log_warn("look")
        (line,) = server.logs
        assert (line.level, line.message, line.file) == ("WARNING", "look", "test_testing.py")
        assert "look" in capfd.readouterr().err

    def test_auto_complete(self, server: Server) -> None:
        class Completes(Tell):
            @staticmethod
            def auto_complete_config(config: Any) -> Any:
                config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
                config.set_max_batch_size(8)
                return config

        model = server.load(Completes)
        assert model.config["max_batch_size"] == 8 and json.loads(model.args["model_config"])["output"][0]["name"] == "OUT"
        assert server.load(Completes, auto_complete=False).config["output"] == []
        with pytest.raises(Fault, match=r"must return a valid pb.ModelConfig object\."):
            server.load(type("Bad", (), {"auto_complete_config": staticmethod(lambda _: None)}))

    def test_folders(self, tmp_path: Path) -> None:
        version = tmp_path / "twice" / "2"
        version.mkdir(parents=True)
        (tmp_path / "twice" / "config.pbtxt").write_text('output { name: "OUT" data_type: TYPE_INT64 dims: 1 }')
        (version / "factor.py").write_text("FACTOR = 2")
        (version / "beside.py").write_text("from .factor import FACTOR")
        (version / "model.py").write_text(
            textwrap.dedent("""
                import triton_python_backend_utils as pb_utils
                import factor
                from .beside import FACTOR

                class TritonPythonModel:
                    def execute(self, requests):
                        x = requests[0].inputs()[0].as_numpy() * FACTOR * factor.FACTOR
                        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)])]
            """)
        )
        import sys

        path, modules = sys.path[:], set(sys.modules)
        with Server() as server:
            model = server.load(tmp_path / "twice", version=2)
            assert outputs(model.infer({"IN": [1]}))["OUT"].tolist() == [4]
            assert model.args["model_name"] == "twice" and model.name == "twice_0"
        assert sys.path == path and set(sys.modules) == modules

    def test_outside_of_a_block(self) -> None:
        with pytest.raises(RuntimeError, match="inside of"):
            Server().load(Double)


PBTXT = """
# a comment
name: "m" max_batch_size: 8
input [
  { name: "A", data_type: TYPE_FP32, dims: [ 3, -1 ], optional: True },
  { name: 'B' data_type: TYPE_STRING dims: [ 1 ] dims: 2 reshape: { shape: [ ] } }
]
output { name: "C" "D" }
output < name: "E\\n\\x41\\101" >
instance_group [ { count: 2 kind: KIND_CPU } ];
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 0x10 }
model_transaction_policy { decoupled: true }
parameters { key: "k" value: { string_value: "v" } }
parameters: [ { key: "l" value { string_value: "w" } } ]
ratio: 1.5f
"""


class TestConfig:
    def test_pbtxt(self) -> None:
        assert parse(PBTXT) == {
            "name": "m",
            "max_batch_size": 8,
            "input": [
                {"name": "A", "data_type": "TYPE_FP32", "dims": [3, -1], "optional": True},
                {"name": "B", "data_type": "TYPE_STRING", "dims": [1, 2], "reshape": {"shape": []}},
            ],
            "output": [{"name": "CD"}, {"name": "E\nAA"}],
            "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
            "dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 16},
            "model_transaction_policy": {"decoupled": True},
            "parameters": {"k": {"string_value": "v"}, "l": {"string_value": "w"}},
            "ratio": 1.5,
        }

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a: 1\nb {", "config.pbtxt line 2: found the end, want the name of a field"),
            ("a:", "config.pbtxt line 1: found the end, want a value"),
            ("a: 1\n: 2", "config.pbtxt line 2: found ':', want the name of a field"),
            ('\na: "x', "config.pbtxt line 2: '\"x' is no text format"),
            ("a: }", "config.pbtxt line 1: found '}', want a value"),
        ],
    )
    def test_bad_pbtxt(self, text: str, message: str) -> None:
        with pytest.raises(BadConfig) as raised:
            parse(text)
        assert str(raised.value) == message

    def test_defaults(self) -> None:
        filled = fill({"input": [{"name": "A"}]}, "m")
        assert filled["name"] == "m" and filled["backend"] == "python" and filled["input"][0]["optional"] is False
        assert fill({}, "m")["input"] == []

    def test_examples(self) -> None:
        for path in (Path(__file__).parents[2] / "models" / "examples").glob("*/config.pbtxt"):
            assert parse(path.read_text("utf-8"))["input"]
