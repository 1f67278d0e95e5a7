"""EXECUTE and EXECUTED: a model's requests, and the handling of its results."""

from __future__ import annotations

import json
import re
import struct
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Start
from frames import BYTES, TYPES, Request
from supervisor import Supervisor

IDENTITY = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests
            ]
"""

PRESENT, FINAL, ERROR = 1, 2, 4
BATCH_ERROR = "Failed to process the request(s) for model 'm_0_0', message: "


def model(body: str) -> str:
    """A model whose execute has this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 12)
    return f"""
    import triton_python_backend_utils as pb_utils
    import numpy as np
    import asyncio

    class TritonPythonModel:
        def execute(self, requests):
{lines}
    """


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

    def test_only_what_the_config_has(self, start: Start) -> None:
        (response,) = start(self.TWO, outputs=["A", "B"]).execute(Request(1, [("IN", np.zeros(1))])).responses
        assert [output.name for output in response.outputs] == ["A", "B"]

    def test_only_what_is_asked_for(self, start: Start) -> None:
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


class TestWrongReturns:
    """The texts are Triton's. The next batch is executed as if nothing had happened."""

    CASES = (
        ("(pb_utils.InferenceResponse([]),)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("pb_utils.InferenceResponse([])",
         "Expected a list in the execute return, found type '<class 'c_python_backend_utils.InferenceResponse'>'."),
        ("5", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("np.zeros(1)", "Expected a list in the execute return, found type '<class 'numpy.ndarray'>'."),
        ("{}", "Expected a list in the execute return, found type '<class 'dict'>'."),
        ("[]", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
               "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ("[None, None]", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                         "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2\n"),
        ("[5]", "Expected an 'InferenceResponse' object in the execute function return list, "
                "found type '<class 'int'>'."),
        ("[pb_utils.Tensor('OUT', np.zeros(1))]",
         "Expected an 'InferenceResponse' object in the execute function return list, "
         "found type '<class 'c_python_backend_utils.Tensor'>'."),
        ("['x']", "Expected an 'InferenceResponse' object in the execute function return list, "
                  "found type '<class 'str'>'."),
    )  # fmt: skip

    @pytest.mark.parametrize(("expression", "text"), CASES)
    def test_text_says_what_is_wrong(self, start: Start, expression: str, text: str) -> None:
        stub = start(
            model(
                f"if requests[0].request_id() == 'good':\n    return [pb_utils.InferenceResponse([])]\nreturn {expression}"
            )
        )
        answer = stub.execute(Request(1, [("IN", np.zeros(100000))]))
        assert (answer.status, answer.text, answer.responses) == (1, BATCH_ERROR + text, [])
        assert any(log["level"] == 2 and log["message"] == BATCH_ERROR + text for log in stub.logs)
        assert stub.execute(Request(2, id="good")).responses[0].flags == PRESENT | FINAL
        assert not stub.loans

    def test_one_wrong_response_of_several(self, start: Start) -> None:
        """Only its client is told; the log line has the number of the batch."""
        stub = start(model("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.full(100000, 7.0))]), 5]"))
        answer = stub.execute(Request(1), Request(2))
        good, bad = answer.responses
        assert answer.status == 0 and (good.handle, good.flags) == (1, PRESENT | FINAL)
        assert good["OUT"].shape == (100000,) and good["OUT"][-1] == 7
        assert (bad.handle, bad.flags, bad.code, bad.outputs) == (2, PRESENT | FINAL | ERROR, 1, [])
        want = "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."
        assert bad.error == BATCH_ERROR + want
        (log,) = stub.logs
        assert (log["level"], log["message"], log["own"], log["batch"]) == (2, BATCH_ERROR + want, True, answer.batch)

    def test_wrong_responses_of_requests_with_senders(self, start: Start) -> None:
        stub = start(
            model("""
                senders = [request.get_response_sender() for request in requests]
                good = pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([1.0]))])
                senders[0].send(good, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                senders[1].send(good)
                requests[2].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                self.senders = senders
                return [good, good, good, 5, good]
            """)
        )
        answer = stub.execute(*(Request(n) for n in range(1, 6)))
        sent = [(response.handle, response.flags) for response in stub.responses]
        assert sent == [(1, PRESENT | FINAL), (2, PRESENT)]
        more = BATCH_ERROR + "Unable to send response. Non-decoupled model cannot send more than one response."
        second, third, fourth, fifth = answer.responses  # the first one had its answer
        assert answer.status == 0 and (second.handle, second.error) == (2, more)
        assert third.error.startswith(BATCH_ERROR + "Expected a None object in the execute function return list for resch")
        assert fourth.error.startswith(BATCH_ERROR + "Expected an 'InferenceResponse' object")
        assert fifth.flags == PRESENT | FINAL and fifth["OUT"].tolist() == [1.0]
        assert [log["batch"] for log in stub.logs] == [answer.batch] * 4

    def test_one_response_without_memory(self, start: Start) -> None:
        """The others are sent; blocks placed for it go back."""
        stub = start(
            model("""
                small = pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.full(10000, 1.0))])
                large = [pb_utils.Tensor('OUT', np.zeros(1 << 15)), pb_utils.Tensor('OUT', np.zeros(1 << 20))]
                return [small, pb_utils.InferenceResponse(large), small]
            """),
            max_bytes=4 << 20,
        )
        for _ in range(30):
            answer = stub.execute(Request(1), Request(2), Request(3))
            first, second, third = answer.responses
            assert answer.status == 0 and first.flags == third.flags == PRESENT | FINAL
            assert second.error.startswith(BATCH_ERROR + "Failed to increase the shared memory pool size")
            for response in (first, third):
                assert response["OUT"][-1] == 1.0
            for ticket in list(stub.kept.elements()):
                stub.give_back(ticket)

    @pytest.mark.parametrize("expression", ["None", "[None]"])
    def test_nothing_returned(self, start: Start, expression: str) -> None:
        stub = start(model(f"return {expression}"))
        answer = stub.execute(Request(1))
        assert not answer.responses
        (response,) = stub.responses
        assert answer.status == 1 and response.flags == PRESENT | FINAL | ERROR and response.code == 1
        assert response.error == answer.text and response.error.startswith(BATCH_ERROR)

    def test_request_list_that_was_emptied(self, start: Start) -> None:
        stub = start(model("n = len(requests)\nrequests.clear()\nreturn [pb_utils.InferenceResponse([])] * n"))
        assert len(stub.execute(Request(1), Request(2)).responses) == 2


class TestExceptions:
    def text(self, start: Start, body: str) -> str:
        stub = start(model(body))
        answer = stub.execute(Request(1, [("IN", np.zeros(100000))]))
        assert answer.status == 1 and answer.text.startswith(BATCH_ERROR)
        # The stub lives, and the loan has ended.
        assert stub.execute(Request(1)).status == 1
        assert not stub.loans
        return answer.text[len(BATCH_ERROR) :]

    def test_traceback_ends_in_the_model(self, start: Start) -> None:
        text = self.text(start, "def inner():\n    raise ValueError('why')\ninner()")
        first, rest = text.split("\n\nAt:\n")
        assert first == "ValueError: why"
        lines = rest.splitlines()
        assert len(lines) == 2 and text.endswith("\n")
        assert lines[0].startswith("  /") and lines[0].endswith("/1/model.py(9): inner")
        assert lines[1].endswith("/1/model.py(10): execute")

    @pytest.mark.parametrize(
        ("body", "first"),
        [
            ("raise SystemExit(3)", "SystemExit: 3"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt: <EMPTY MESSAGE>"),
            ("raise GeneratorExit('g')", "GeneratorExit: g"),
            ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine"),
            ("raise KeyError('k')", "KeyError: 'k'"),
            ("raise ValueError('\\udcff')", "ValueError: \\udcff"),
            ("nonsense", "NameError: name 'nonsense' is not defined"),
            (
                "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E",
                "E: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>",
            ),
            ("e = ValueError('v')\ne.__notes__ = ['n1', 'n2']\nraise e", "ValueError: v\n__notes__ (len=2):\nn1\nn2"),
        ],
    )
    def test_kinds_are_named(self, start: Start, body: str, first: str) -> None:
        assert self.text(start, body).split("\n\nAt:\n")[0] == first

    def test_attributes_that_fail(self, start: Start) -> None:
        """Only the text of an exception comes from the model's code, and the process lives on."""
        stub = start("""
            import sys
            class Meta(type):
                __name__ = property(lambda cls: 1 / 0)
                __repr__ = __str__ = None
            class Text(str):
                replace = __format__ = None
            class Note:
                def __repr__(self): sys.exit()

            def forwards(self, name): return getattr(self.missing, name)
            def lacks(self, name): raise KeyError(name)
            def ends(self, name): sys.exit()
            fails = property(lambda self: 1 / 0)
            CLASSES = [
                type("E", (Exception,), {"__getattr__": forwards}),
                type("E", (Exception,), {"__getattr__": lacks}),
                type("E", (Exception,), {"__getattribute__": ends}),
                type("E", (Exception,), {"__traceback__": fails, "__cause__": fails, "__context__": fails}),
                type("E", (Exception,), {"__notes__": [Note()]}),
                type("E", (Exception,), {"__str__": lambda self: Text("why")}),
                Meta("E", (Exception,), {}),
            ]

            class TritonPythonModel:
                def execute(self, requests):
                    raise CLASSES[int(requests[0].request_id())]("why")
        """)
        for number in range(7):
            text = stub.execute(Request(1, id=str(number))).text
            assert text.startswith(BATCH_ERROR + "E: why\n\nAt:\n"), number

    def test_message_that_fails(self, start: Start) -> None:
        """The reason of that is told too, even where each reason has another one."""
        text = self.text(start, "class E(Exception):\n    def __str__(self): raise RuntimeError('why')\nraise E")
        assert re.search(r"execute\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: RuntimeError: why\n\nAt:\n  .*: __str__\n$", text)
        text = self.text(start, "class E(Exception):\n    def __str__(self): raise E\nraise E")
        assert text.count("MESSAGE UNAVAILABLE DUE TO EXCEPTION: E: ") == 3

    def test_long_text(self, start: Start) -> None:
        """It takes a block of its own, and arrives whole."""
        assert self.text(start, "raise ValueError('x' * 100000)").startswith("ValueError: " + "x" * 100000 + "\n")

    def test_recursion_without_end_is_an_error(self, start: Start) -> None:
        assert self.text(start, "def f():\n    f()\nf()").startswith("RecursionError: maximum recursion depth exceeded")

    def test_our_frames_do_not_show(self, start: Start) -> None:
        text = self.text(start, "pb_utils.Tensor('', np.zeros(1))")
        assert text.startswith("TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n")
        assert len(text.splitlines()) == 4

    def test_where_our_files_lie_does_not_show(self, start: Start, root: Path) -> None:
        """Clients are told of a place in what models import, but not of the cache that it is unpacked into."""
        text = self.text(start, "pb_utils.get_output_config_by_name(3, 4)")
        assert "\n  triton_python_backend_utils.py(" in text and str(root) not in text
        text = self.text(start, "from triton_python_backend_utils import nothing_there")
        assert "(triton_python_backend_utils.py)" in text and str(root) not in text

    def test_missing_execute(self, start: Start) -> None:
        stub = start("class TritonPythonModel: pass")
        text = stub.execute(Request(1)).text
        assert text.startswith(BATCH_ERROR + "Python model /") and text.endswith(
            "/m0/1/model.py does not implement `execute` method."
        )


class TestCoroutines:
    def test_result_of_a_coroutine_is_the_answer(self, start: Start) -> None:
        stub = start("""
            import asyncio
            import threading
            import numpy as np
            import triton_python_backend_utils as pb_utils

            class TritonPythonModel:
                async def execute(self, requests):
                    await asyncio.sleep(0.001)
                    main = threading.current_thread() is threading.main_thread()
                    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([main]))]) for _ in requests]

                def finalize(self):
                    pass
        """)
        for _ in range(3):
            assert stub.execute(Request(1), Request(2)).responses[1]["OUT"].tolist() == [False]
        assert stub.finalize() == {"error": ""}
        assert stub.wait_exit() == 0

    @pytest.mark.parametrize(
        ("body", "first"),
        [
            ("raise ValueError('why')", "ValueError: why"),
            ("raise SystemExit(2)", "SystemExit: 2"),
            ("raise asyncio.CancelledError", "CancelledError: <EMPTY MESSAGE>"),
        ],
    )
    def test_exceptions_name_the_line(self, start: Start, body: str, first: str) -> None:
        stub = start(model(body).replace("def execute", "async def execute"))
        for _ in range(2):
            text = stub.execute(Request(1)).text
            assert text.split("\n\nAt:\n")[0] == BATCH_ERROR + first
            assert text.endswith("/1/model.py(8): execute\n")

    def test_generators_run_as_coroutines(self, start: Start) -> None:
        """Up to Python 3.11 asyncio takes them for coroutines."""
        stub = start(model("yield from asyncio.sleep(0.001).__await__()\nreturn [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.array([5]))])]"))
        refused = start(model("yield 5"))
        if sys.version_info < (3, 12):
            assert stub.execute(Request(1)).responses[0]["OUT"].tolist() == [5]
            assert "message: RuntimeError: Task got bad yield: 5\n" in refused.execute(Request(1)).text
        else:
            assert stub.execute(Request(1)).text.endswith("found type '<class 'generator'>'.")

    def test_wrong_result(self, start: Start) -> None:
        stub = start(model("return 5").replace("def execute", "async def execute"))
        assert stub.execute(Request(1)).text.endswith("found type '<class 'int'>'.")


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
        # The last known state of those, and nothing of it for the next ones.
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
