"""InferenceRequest, InferenceResponse, TritonError and their arguments."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from c_python_backend_utils import InferenceTrace
from c_python_backend_utils.request import trace_of
from triton_python_backend_utils import (
    InferenceRequest,
    InferenceResponse,
    Tensor,
    TritonError,
    TritonModelException,
)


def tensor(name: str = "X") -> Tensor:
    return Tensor(name, np.zeros(1))


def request(**changes: Any) -> InferenceRequest:
    return InferenceRequest(**{"inputs": [], "requested_output_names": [], "model_name": "m", **changes})


class TestRequest:
    def test_defaults_are_empty(self) -> None:
        made = InferenceRequest(inputs=[], requested_output_names=[], model_name="m")
        assert made.inputs() == [] and made.requested_output_names() == set()
        assert made.request_id() == "" and made.correlation_id() == 0
        assert made.flags() == 0 and made.timeout() == 0 and made.parameters() == "{}"
        assert made.trace().get_context() is None

    def test_everything_given_is_kept(self) -> None:
        x, trace = tensor(), trace_of('{"traceparent": "00"}')
        made = InferenceRequest("id", 7, [x], ["A", b"B", "A"], "m", 3, 1, 5, trace=trace, parameters={"k": 1})
        assert made.inputs() == [x] and made.inputs()[0] is x
        assert made.requested_output_names() == {"A", "B"}
        assert made.request_id() == "id" and made.correlation_id() == 7
        assert made.flags() == 1 and made.timeout() == 5 and made.parameters() == '{"k": 1}'
        assert made.trace() is trace and made.trace().get_context() == '{"traceparent": "00"}'

    @pytest.mark.parametrize(
        ("text", "context"), [("17", None), ('17{"traceparent":"00"}', '{"traceparent":"00"}'), ("{}", "{}"), (None, None)]
    )
    def test_traces_without_the_number(self, text: str | None, context: str | None) -> None:
        assert trace_of(text).get_context() == context

    def test_sequences_are_lists(self) -> None:
        x = tensor()
        names = np.empty(1, np.object_)
        names[0] = b"A"
        made = request(inputs=(x,), requested_output_names=names)
        assert made.inputs() == [x] and made.requested_output_names() == {"A"}

    def test_lists_are_new(self) -> None:
        made = request(inputs=[tensor()])
        made.inputs().clear()
        assert len(made.inputs()) == 1

    @pytest.mark.parametrize("missing", ["inputs", "requested_output_names", "model_name"])
    def test_required_arguments_are_missed(self, missing: str) -> None:
        given = {"inputs": [], "requested_output_names": [], "model_name": "m"}
        del given[missing]
        with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\."):
            InferenceRequest(**given)

    @pytest.mark.parametrize(
        "changes",
        [
            {"request_id": None}, {"request_id": 1}, {"correlation_id": None}, {"inputs": None}, {"inputs": [1]},
            {"inputs": {}}, {"inputs": "x"}, {"requested_output_names": None}, {"requested_output_names": "A"},
            {"requested_output_names": {"A"}}, {"requested_output_names": [None]}, {"model_name": None},
            {"model_version": None}, {"model_version": "1"}, {"model_version": 1.0}, {"flags": None}, {"flags": -1},
            {"flags": 2**32}, {"timeout": None}, {"timeout": -1}, {"timeout": 2**64}, {"trace": 1}, {"unknown": 1},
            {"request_id": "\udcff"},
        ],
        ids=str,
    )  # fmt: skip
    def test_type_errors(self, changes: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\."):
            request(**changes)

    @pytest.mark.parametrize("value", [0, True, 2**64 - 1, "a text", ""])
    def test_correlation_ids(self, value: Any) -> None:
        assert request(correlation_id=value).correlation_id() == value

    @pytest.mark.parametrize("value", [1.5, b"x", np.int64(1), [1]])
    def test_correlation_ids_of_other_types(self, value: Any) -> None:
        with pytest.raises(TritonModelException, match=r"^Correlation ID must be integer or string$"):
            request(correlation_id=value)

    @pytest.mark.parametrize("value", [-1, 2**64])
    def test_correlation_ids_out_of_range(self, value: int) -> None:
        with pytest.raises(
            RuntimeError, match=r"^Unable to cast Python instance of type <class 'int'> to C\+\+ type '\?' "
        ):
            request(correlation_id=value)

    def test_integers_of_all_sorts(self) -> None:
        made = request(flags=np.int64(2), timeout=True, model_version=np.int8(-1))
        assert made.flags() == 2 and made.timeout() == 1

    def test_empty_places(self) -> None:
        with pytest.raises(TritonModelException) as raised:
            request(request_id="7", inputs=[None])
        assert str(raised.value) == "Input tensor for request with id '7' and model name 'm' should not be empty."
        with pytest.raises(TritonModelException) as raised:
            request(request_id="7", requested_output_names=["A", ""])
        assert str(raised.value) == (
            "Requested output name for request with id '7' and model name 'm' should not be empty."
        )

    def test_flags_can_be_set(self) -> None:
        made = request()
        made.set_flags(3)
        assert made.flags() == 3
        for args, named in (((), {}), ((-1,), {}), (("1",), {}), ((1, 2), {}), ((), {"flags": 1})):
            with pytest.raises(TypeError, match=r"^set_flags\(\): incompatible function arguments\."):
                made.set_flags(*args, **named)

    def test_undecodable_text_shows_when_it_is_asked_for(self) -> None:
        made = request(request_id=b"\xff")
        with pytest.raises(UnicodeDecodeError):
            made.request_id()

    def test_made_requests_are_never_cancelled(self) -> None:
        assert request().is_cancelled() is False

    def test_trace_cannot_be_made(self) -> None:
        with pytest.raises(TypeError, match=r"^c_python_backend_utils\.InferenceTrace: No constructor defined!$"):
            InferenceTrace()


PARAMETERS = [
    (None, {}),
    ({}, {}),
    ({"b": True, "i": -5, "s": "é", "big": 2**70}, {"b": True, "i": -5, "s": "é", "big": 2**70}),
]


class TestParameters:
    @pytest.mark.parametrize(("given", "want"), PARAMETERS)
    def test_json_values_are_taken(self, given: Any, want: dict[str, Any]) -> None:
        for made in (request(parameters=given), InferenceResponse([], parameters=given)):
            assert json.loads(made.parameters()) == want

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ([], "Expect N8pybind114dictE, got <class 'list'>"),
            ("{}", "Expect N8pybind114dictE, got <class 'str'>"),
            ({1: 1}, "Expect parameters keys to have type str, found type <class 'int'>"),
            ({"a": 1.5}, "Expect parameters values to have type bool/int/str, found type <class 'float'>"),
            ({"a": None}, "Expect parameters values to have type bool/int/str, found type <class 'NoneType'>"),
            ({"a": []}, "Expect parameters values to have type bool/int/str, found type <class 'list'>"),
        ],
    )
    def test_other_values_are_refused(self, given: Any, text: str) -> None:
        for make in (lambda: request(parameters=given), lambda: InferenceResponse([], parameters=given)):
            with pytest.raises(TritonModelException) as raised:
                make()
            assert str(raised.value) == text


class TestResponse:
    def test_tensors_are_kept_in_order(self) -> None:
        x, y = tensor(), tensor("Y")
        for given in ([x, y], (x, y)):
            response = InferenceResponse(given)
            assert response.output_tensors() == [x, y]
            assert not response.has_error() and response.error() is None and response.parameters() == "{}"

    def test_lists_are_new(self) -> None:
        given = [tensor()]
        response = InferenceResponse(output_tensors=given)
        given.clear()
        response.output_tensors().clear()
        assert len(response.output_tensors()) == 1

    def test_nothing_makes_an_empty_response(self) -> None:
        assert InferenceResponse().output_tensors() == []

    def test_error_is_kept_beside_tensors(self) -> None:
        error = TritonError("bad", TritonError.NOT_FOUND)
        response = InferenceResponse(output_tensors=[tensor()], error=error)
        assert response.has_error() and response.error() is error
        assert len(response.output_tensors()) == 1

    def test_subclasses_of_tensor(self) -> None:
        class Mine(Tensor):
            pass

        mine = Mine("X", np.zeros(1))
        assert InferenceResponse([mine]).output_tensors() == [mine]

    @pytest.mark.parametrize(
        "args", [(None,), ([1],), (5,), ("x",), ([], "bad"), ([], ValueError("bad")), ([], None, None, 1)], ids=str
    )
    def test_type_errors(self, args: Any) -> None:
        with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\."):
            InferenceResponse(*args)
        with pytest.raises(TypeError):
            InferenceResponse([], unknown=1)

    def test_empty_place(self) -> None:
        with pytest.raises(TritonModelException) as raised:
            InferenceResponse([tensor(), None])
        assert str(raised.value) == "Output tensor for inference response should not be empty."


CODES = [
    "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
]  # fmt: skip


class TestError:
    def test_default_code(self) -> None:
        error = TritonError("bad")
        assert error.message() == "bad" and error.code() == TritonError.INTERNAL

    @pytest.mark.parametrize(("number", "name"), list(enumerate(CODES)))
    def test_codes_have_names_and_numbers(self, number: int, name: str) -> None:
        code = getattr(TritonError, name)
        error = TritonError(message="bad", code=code)
        assert error.code() == code and int(error.code()) == number
        assert code.name == name and code.value == number and code == number and code == float(number)
        assert hash(code) == hash(number)
        assert str(code) == f"__ErrorCode.{name}" and repr(code) == f"<__ErrorCode.{name}: {number}>"
        assert getattr(error, name) == code

    def test_codes_compare_as_in_triton(self) -> None:
        assert TritonError.INTERNAL is not TritonError.INTERNAL
        assert TritonError.INTERNAL != TritonError.UNKNOWN
        assert TritonError.INTERNAL != "INTERNAL"
        with pytest.raises(TypeError):
            TritonError.INTERNAL < TritonError.NOT_FOUND  # type: ignore[operator]  # noqa: B015  # it raises
        assert type(TritonError.INTERNAL) is getattr(TritonError, "__ErrorCode")

    def test_codes_are_read_only(self) -> None:
        with pytest.raises(AttributeError):
            TritonError.INTERNAL = 5  # type: ignore[assignment]  # it raises
        with pytest.raises(AttributeError):
            TritonError("bad").INTERNAL = 5
        klass: Any = TritonError
        klass.extra = 1
        del klass.extra

    @pytest.mark.parametrize(
        "args", [(), (None,), (5,), ("bad", 1), ("bad", None), ("bad", "INTERNAL"), ("a", "b", "c")]
    )
    def test_type_errors(self, args: Any) -> None:
        with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\."):
            TritonError(*args)

    def test_is_no_exception(self) -> None:
        with pytest.raises(TypeError):
            raise TritonError("bad")  # type: ignore[misc]

    def test_bytes_as_message(self) -> None:
        assert TritonError(b"bad").message() == "bad"


def test_model_exception_is_an_ordinary_one() -> None:
    assert TritonModelException.__module__ == "c_python_backend_utils"
    assert issubclass(TritonModelException, Exception)
    assert str(TritonModelException("why")) == "why"
    assert TritonModelException(1, 2).args == (1, 2)


@pytest.mark.parametrize("thing", [request(), InferenceResponse([]), TritonError("x")], ids=lambda t: type(t).__name__)
def test_bound_objects_reject_copies_and_attributes(thing: Any) -> None:
    with pytest.raises(AttributeError):
        thing.extra = 1
    for act in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=f"^cannot pickle 'c_python_backend_utils.{type(thing).__name__}' object$"):
            act(thing)
    assert {thing: 1}[thing] == 1
    assert repr(thing).startswith(f"<c_python_backend_utils.{type(thing).__name__} object at 0x")
