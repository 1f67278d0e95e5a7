"""nereid_testing: calls of models to the server, and loading of models."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import triton_python_backend_utils as pb_utils
from c_python_backend_utils import runtime
from nereid_testing import Fault, Histogram, Server, outputs
from nereid_testing.config import BadConfig, fill, parse
from test_testing import DECOUPLED, FINAL, Double, Tell, ask, first, out, server

__all__ = ["server"]  # a fixture


class TestOtherModels:
    def test_functions_stand_for_models(self) -> None:
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

    def test_errors_reach_the_caller(self) -> None:
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
            with pytest.raises(Fault, match="replacement returned int"):
                ask("broken")

    def test_models_stand_for_themselves(self) -> None:
        with Server({"class": Double, "instance": Double()}):
            for name in ("class", "instance"):
                assert outputs(ask(name))["OUT"].tolist() == [0, 2, 4]

    def test_streams_come_whole(self) -> None:
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

    def test_coroutines_stand_for_models(self) -> None:
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
    def test_loading_changes_readiness(self) -> None:
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
    def test_values_are_shared_by_name_and_labels(self, server: Server) -> None:
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

    def test_histograms_count_by_bucket(self, server: Server) -> None:
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

    def test_finalize_raises(self, capfd: pytest.CaptureFixture[str]) -> None:
        """All models are finalized, and a failed test keeps its own exception."""
        ends = []

        class Fails(Double):
            def finalize(self) -> None:
                ends.append(self)
                raise ValueError(f"number {len(ends)}")

        before = runtime.current()
        with pytest.raises(ValueError, match="number 1"), Server() as server:
            server.load(Fails), server.load(Fails)
        assert len(ends) == 2 and "ValueError: number 2" in capfd.readouterr().err
        with pytest.raises(AssertionError, match="of the test"), Server() as server:
            server.load(Fails)
            raise AssertionError("of the test")
        assert "ValueError: number 3" in capfd.readouterr().err and runtime.current() is before

    def test_logs(self, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
        pb_utils.Logger.log_warn("look")
        (line,) = server.logs
        assert (line.level, line.message, line.file) == ("WARNING", "look", "test_testing_server.py")
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
            ('\na: "x', "config.pbtxt line 2: '\"x' is not text format"),
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
        for path in (Path(__file__).parents[2] / "examples" / "models").glob("*/config.pbtxt"):
            assert parse(path.read_text("utf-8"))["input"]
