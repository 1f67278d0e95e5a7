"""Invalid results of execute, and exceptions that it raises."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import Start
from frames import ERROR, FINAL, PRESENT, Request

from models import BATCH_ERROR, model


class TestWrongReturns:
    """The texts are Triton's. The next batch is executed normally."""

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
    def test_error_text_names_the_mistake(self, start: Start, expression: str, text: str) -> None:
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
        """Only its client is informed; the log line has the number of the batch."""
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
        """The others are sent; blocks used for it are freed."""
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
        """Only the text of an exception comes from the model's code, and the process survives."""
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
        """Its reason is reported too, even if each reason has another one."""
        text = self.text(start, "class E(Exception):\n    def __str__(self): raise RuntimeError('why')\nraise E")
        assert re.search(r"execute\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: RuntimeError: why\n\nAt:\n  .*: __str__\n$", text)
        text = self.text(start, "class E(Exception):\n    def __str__(self): raise E\nraise E")
        assert text.count("MESSAGE UNAVAILABLE DUE TO EXCEPTION: E: ") == 3

    def test_long_text(self, start: Start) -> None:
        """It takes a separate block, and arrives complete."""
        assert self.text(start, "raise ValueError('x' * 100000)").startswith("ValueError: " + "x" * 100000 + "\n")

    def test_recursion_without_end_is_an_error(self, start: Start) -> None:
        assert self.text(start, "def f():\n    f()\nf()").startswith("RecursionError: maximum recursion depth exceeded")

    def test_our_frames_do_not_show(self, start: Start) -> None:
        text = self.text(start, "pb_utils.Tensor('', np.zeros(1))")
        assert text.startswith("TritonModelException: Tensor name cannot be an empty string.\n\nAt:\n")
        assert len(text.splitlines()) == 4

    def test_where_our_files_lie_does_not_show(self, start: Start, root: Path) -> None:
        """Clients see positions in the modules of the API, but not their cache folder."""
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
