"""EXECUTE and EXECUTED: a model's requests, and its results."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from conftest import Start
from frames import BYTES, ERROR, FINAL, PRESENT, TYPES, Request
from supervisor import Supervisor

from models import BATCH_ERROR, IDENTITY, model


class TestTensors:
    @pytest.mark.parametrize("size", [3, 1024, 2000, 1 << 20])
    def test_every_type(self, start: Start, size: int) -> None:
        stub = start(IDENTITY)
        for kind in TYPES[1:13]:
            array = (np.arange(size) % 2).astype(kind)
            (response,) = stub.execute(Request(5, [("IN", array)])).responses
            assert (response.handle, response.flags) == (5, PRESENT | FINAL)
            np.testing.assert_array_equal(response["OUT"], array)
            assert response["OUT"].dtype == array.dtype

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 2, 3, 4), (2000, 2)])
    def test_shapes_go_there_and_back(self, start: Start, shape: tuple[int, ...]) -> None:
        (response,) = start(IDENTITY).execute(Request(5, [("IN", np.zeros(shape, np.float32))])).responses
        assert response["OUT"].shape == shape

    @pytest.mark.parametrize(
        "elements", [[b"a", b"", b"\xff\0"], [b"abc", b"d\0\0"], [], [b"x" * i for i in range(300)], ["é", 5, None]]
    )
    def test_strings_go_there_and_back(self, start: Start, elements: list[Any]) -> None:
        array = np.empty(len(elements), np.object_)
        array[:] = elements
        (response,) = start(IDENTITY).execute(Request(5, [("IN", array)])).responses
        want = [e if isinstance(e, bytes) else str(e).encode() for e in elements]
        assert response["OUT"].tolist() == want

    def test_batch_is_answered_in_order(self, start: Start) -> None:
        stub = start(IDENTITY)
        arrays = [np.full(size, size, np.int64) for size in (1, 600, 2, 300000, 512, 0, 513, 1)]
        answer = stub.execute(*(Request(number, [("IN", array)]) for number, array in enumerate(arrays)))
        assert answer.status == 0 and answer.text == "" and 0 < answer.start <= answer.end
        assert [response.handle for response in answer.responses] == list(range(8))
        for response, array in zip(answer.responses, arrays):
            np.testing.assert_array_equal(response["OUT"], array)

    def test_bf16_passes_through_as_it_came(self, start: Start) -> None:
        stub = start(
            model('return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", requests[0].inputs()[0])])]')
        )
        for count in (3, 5000):
            data = bytes(range(256)) * (count * 2 // 256) + bytes(range(count * 2 % 256))
            (response,) = stub.execute(Request(1, [("IN", (14, (count,), data))])).responses
            assert response.outputs[0].type == 14 and response.outputs[0].data == data

    def test_many_inputs_and_outputs(self, start: Start) -> None:
        stub = start(
            model(
                "return [pb_utils.InferenceResponse([pb_utils.Tensor('O' + t.name()[1:], t.as_numpy() * 2)"
                " for t in requests[0].inputs()])]"
            ),
            inputs=[f"I{n}" for n in range(40)],
            outputs=[f"O{n}" for n in range(40)],
        )
        arrays = [np.full(500, n, np.int64) for n in range(40)]
        (response,) = stub.execute(Request(1, [(f"I{n}", a) for n, a in enumerate(arrays)])).responses
        for n, array in enumerate(arrays):
            np.testing.assert_array_equal(response[f"O{n}"], array * 2)

    def test_input_tensor_returned_itself(self, start: Start) -> None:
        """The model's writes into its array do not change the received bytes."""
        stub = start(
            model("""
                x = requests[0].inputs()[0]
                x.as_numpy()[:] = 9
                x._name = 'OUT'
                return [pb_utils.InferenceResponse([x])]
            """)
        )
        for size in (4, 1000, 100000):
            array = np.arange(size, dtype=np.int32)
            (response,) = stub.execute(Request(1, [("IN", array)])).responses
            np.testing.assert_array_equal(response["OUT"], array)

    def test_numbers_are_read_when_they_are_sent_and_strings_when_they_are_made(self, start: Start) -> None:
        stub = start(
            model("""
                a, b = np.zeros(2, np.int32), np.array([b'before'], np.object_)
                x, y = pb_utils.Tensor('OUT', a), pb_utils.Tensor('TEXT', b)
                a[0] = 1
                b[0] = b'after'
                return [pb_utils.InferenceResponse([x, y])]
            """),
            outputs=["OUT", "TEXT"],
        )
        (response,) = stub.execute(Request(1, [("IN", np.zeros(1, np.int32))])).responses
        assert response["OUT"].tolist() == [1, 0] and response["TEXT"].tolist() == [b"before"]

    @pytest.mark.parametrize("size", [2, 100000])
    def test_tensor_sent_again_is_sent_as_it_was(self, start: Start, size: int) -> None:
        stub = start(f"""
            import triton_python_backend_utils as pb_utils
            import numpy as np

            array = np.zeros({size}, np.int32)
            tensor = pb_utils.Tensor("OUT", array)

            class TritonPythonModel:
                def execute(self, requests):
                    array[0] += 1
                    return [pb_utils.InferenceResponse([tensor])]
        """)
        for _ in range(3):
            (response,) = stub.execute(Request(1, [("IN", np.zeros(1, np.int32))])).responses
            assert response["OUT"][0] == 1

    def test_same_name_twice(self, start: Start) -> None:
        stub = start(
            model("t = pb_utils.Tensor('OUT', np.ones(1))\nreturn [pb_utils.InferenceResponse([t, t])]"),
        )
        (response,) = stub.execute(Request(1, [("IN", np.zeros(1, np.int32))])).responses
        assert [output.name for output in response.outputs] == ["OUT", "OUT"]


class TestRequests:
    ECHO = """
        import json
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            def execute(self, requests):
                responses = []
                for r in requests:
                    text = json.dumps([
                        r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(),
                        sorted(r.requested_output_names()), r.trace().get_context(), [t.name() for t in r.inputs()],
                    ])
                    responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text], object))]))
                return responses
    """

    def ask(self, stub: Supervisor, **changes: Any) -> list[Any]:
        (response,) = stub.execute(Request(1, [("IN", np.zeros(1))], **changes)).responses
        told: list[Any] = json.loads(response["OUT"][0])
        return told

    def test_nothing_said(self, start: Start) -> None:
        assert self.ask(start(self.ECHO)) == ["", 0, 0, 0, "{}", ["OUT"], None, ["IN"]]

    def test_everything_said(self, start: Start) -> None:
        told = self.ask(
            start(self.ECHO, outputs=["OUT", "B"]),
            id="über", correlation=2**64 - 1, flags=2**32 - 1, timeout=2**40, parameters='{"a":1}', outputs=["OUT"],
            trace='{"traceparent": "00-1"}',
        )  # fmt: skip
        assert told == ["über", 2**64 - 1, 2**32 - 1, 2**40, '{"a":1}', ["OUT"], '{"traceparent": "00-1"}', ["IN"]]

    def test_correlation_text(self, start: Start) -> None:
        stub = start(self.ECHO)
        assert self.ask(stub, correlation="a sequence")[1] == "a sequence"
        assert self.ask(stub, correlation="")[1] == ""

    def test_names_that_the_config_does_not_have(self, start: Start) -> None:
        """They are announced by NAME."""
        stub = start(self.ECHO)
        (response,) = stub.execute(Request(1, [("extra", np.zeros(1))])).responses
        assert json.loads(response["OUT"][0])[7] == ["extra"]

    def test_no_inputs(self, start: Start) -> None:
        stub = start(self.ECHO)
        (response,) = stub.execute(Request(1)).responses
        assert json.loads(response["OUT"][0])[7] == []


class TestOutputs:
    TWO = model(
        "return [pb_utils.InferenceResponse([pb_utils.Tensor(n, np.ones(1)) for n in ('A', 'B', 'X')]) for _ in requests]"
    )

    def test_only_outputs_of_the_config_are_sent(self, start: Start) -> None:
        (response,) = start(self.TWO, outputs=["A", "B"]).execute(Request(1, [("IN", np.zeros(1))])).responses
        assert [output.name for output in response.outputs] == ["A", "B"]

    def test_only_requested_outputs_are_sent(self, start: Start) -> None:
        stub = start(self.TWO, outputs=["A", "B"])
        answer = stub.execute(
            Request(1, [("IN", np.zeros(1))], outputs=["B"]), Request(2, [("IN", np.zeros(1))], outputs=[]), Request(3)
        )
        names = [[output.name for output in response.outputs] for response in answer.responses]
        assert names == [["B"], [], ["A", "B"]]

    def test_unwanted_outputs_leave_the_response(self, start: Start) -> None:
        stub = start(
            """
            import triton_python_backend_utils as pb_utils
            import numpy as np

            class TritonPythonModel:
                before = None
                def execute(self, requests):
                    seen = -1 if self.before is None else len(self.before.output_tensors())
                    self.before = pb_utils.InferenceResponse(
                        [pb_utils.Tensor("OUT", np.array([seen])), pb_utils.Tensor("X", np.ones(1))])
                    return [self.before]
            """
        )
        seen = [int(stub.execute(Request(1)).responses[0]["OUT"][0]) for _ in range(2)]
        assert seen == [-1, 1]

    UNDECLARED = model("""
        return [pb_utils.InferenceResponse(
            [pb_utils.Tensor('A', np.ones(1)), pb_utils.Tensor('OTU', np.ones(1))]) for _ in requests]
    """)

    def test_undeclared_outputs_are_told_once(self, start: Start) -> None:
        stub = start(self.UNDECLARED, outputs=["A", "B"])
        for wanted in (None, None, ["A"], ["B"]):
            (response,) = stub.execute(Request(1, outputs=wanted)).responses
            assert [output.name for output in response.outputs] == ([] if wanted == ["B"] else ["A"])
        (log,) = stub.logs
        assert log["level"] == 1 and log["own"] and log["once"] == "output OTU"
        assert log["message"].startswith("output 'OTU' is not in the configuration of model '")
        assert log["message"].endswith("', whose outputs are 'A', 'B': clients do not get it")

    def test_undeclared_outputs_are_errors_to_a_strict_server(self, start: Start) -> None:
        stub = start(self.UNDECLARED, outputs=["A"], strict_outputs=True)
        for response in stub.execute(Request(1), Request(2)).responses:
            assert response.error.startswith("output 'OTU' is not in the configuration of model '")
            assert not response.outputs
        (log,) = stub.logs
        assert log["level"] == 2

    def test_parameters_are_sent(self, start: Start) -> None:
        stub = start(model("return [pb_utils.InferenceResponse([], parameters={'a': 1, 'b': 'é', 'c': True})]"))
        (response,) = stub.execute(Request(1)).responses
        assert json.loads(response.parameters) == {"a": 1, "b": "é", "c": True}

    def test_error_of_one_request(self, start: Start) -> None:
        stub = start(
            model("""
                return [
                    pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones(1))]),
                    pb_utils.InferenceResponse(
                        [pb_utils.Tensor('OUT', np.ones(1))], pb_utils.TritonError('bäd', pb_utils.TritonError.NOT_FOUND)),
                ]
            """)
        )
        answer = stub.execute(Request(1), Request(2))
        assert answer.status == 0
        good, bad = answer.responses
        assert good["OUT"].tolist() == [1]
        assert (bad.flags, bad.code, bad.error, bad.outputs) == (PRESENT | FINAL | ERROR, 2, "bäd", [])

    def test_subclass_of_list(self, start: Start) -> None:
        stub = start(model("class L(list): pass\nreturn L([pb_utils.InferenceResponse([])])"))
        assert stub.execute(Request(1)).responses[0].flags == PRESENT | FINAL


def test_bytes_that_the_wire_cannot_hold_are_refused_when_they_are_read(start: Start) -> None:
    stub = start(IDENTITY)
    text = stub.execute(Request(1, [("IN", (BYTES, (1,), b"\5\0\0\0ab"))])).text
    assert text.startswith(
        BATCH_ERROR + "TritonModelException: Invalid bytes tensor data: string extends beyond buffer\n"
    )


class TestCancellation:
    MODEL = """
        import time
        import numpy as np
        import triton_python_backend_utils as pb_utils

        class TritonPythonModel:
            before = []
            def execute(self, requests):
                old = [r.is_cancelled() for r in self.before]
                deadline = time.monotonic() + 20
                while not requests[0].is_cancelled() and time.monotonic() < deadline and requests[0].request_id():
                    time.sleep(0.001)
                self.before = requests[:]
                seen = np.array([r.is_cancelled() for r in requests] + old)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", seen)]) for _ in requests]
    """

    def test_while_it_is_executed(self, start: Start) -> None:
        stub = start(self.MODEL)
        stub.start_batch(Request(7, id="wait"), Request(8))
        stub.send("CANCEL", 0, struct.pack("<QQQ", 7, 99, 7))
        assert stub.finish_batch().responses[0]["OUT"].tolist() == [True, False]
        # Their last known state, without effect on the next requests.
        stub.start_batch(Request(7), Request(8))
        stub.send("CANCEL", 0, struct.pack("<Q", 12345))
        assert stub.finish_batch().responses[0]["OUT"].tolist() == [False, False, True, False]
        stub.send("CANCEL", 0, struct.pack("<Q", 7))  # too late
        assert stub.execute(Request(9)).responses[0]["OUT"].tolist() == [False, False, False]

    def test_finalize_that_comes_early(self, start: Start) -> None:
        """Reading the ring may find frames for later."""
        stub = start(self.MODEL)
        stub.start_batch(Request(7, id="wait"))
        stub.send("FINALIZE")
        stub.send("CANCEL", 0, struct.pack("<Q", 7))
        assert stub.finish_batch().responses[0]["OUT"].tolist() == [True]
        assert stub.receive().kind == "FINALIZED"
        assert stub.wait_exit() == 0
