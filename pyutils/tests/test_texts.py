"""Exact error texts for models, and the results of introspection."""

from __future__ import annotations

import importlib
import re
import struct
import typing
from typing import Any

import c_python_backend_utils as c
import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

MODULE = "c_python_backend_utils"
TENSOR = pb_utils.Tensor("T", np.zeros(2))
RESPONSE = pb_utils.InferenceResponse([])
REQUEST = pb_utils.InferenceRequest(inputs=[], requested_output_names=[], model_name="m")
ERROR = pb_utils.TritonError("bad")
CODE: Any = type(pb_utils.TritonError.INTERNAL)
LEVEL = pb_utils.Logger.LogLevel


def text_of(kind: type[BaseException], call: Any) -> str:
    with pytest.raises(kind) as raised:
        call()
    assert type(raised.value) is kind
    return re.sub(r"0x[0-9a-f]+", "0x", str(raised.value))


def refusal(function: str, signature: str, invoked: str, kind: str = "function") -> str:
    return (
        f"{function}(): incompatible {kind} arguments. The following argument types are supported:\n"
        f"    1. {signature}\n\nInvoked with: {invoked}"
    )


METHODS = [
    (TENSOR, "name", "str"),
    (TENSOR, "shape", "List[int]"),
    (TENSOR, "is_cpu", "bool"),
    (TENSOR, "triton_dtype", "TRITONSERVER_datatype_enum"),
    (TENSOR, "to_dlpack", "capsule"),
    (TENSOR, "__dlpack_device__", "Tuple[int, int]"),
    (REQUEST, "request_id", "str"),
    (REQUEST, "correlation_id", "object"),
    (REQUEST, "flags", "int"),
    (REQUEST, "timeout", "int"),
    (REQUEST, "parameters", "str"),
    (REQUEST, "trace", f"{MODULE}.InferenceTrace"),
    (REQUEST, "requested_output_names", "Set[str]"),
    (REQUEST, "is_cancelled", "bool"),
    (REQUEST.trace(), "get_context", "object"),
    (RESPONSE, "has_error", "bool"),
    (RESPONSE, "error", f"{MODULE}.TritonError"),
    (ERROR, "code", f"{MODULE}.TritonError.__ErrorCode"),
    (ERROR, "message", "str"),
]


@pytest.mark.parametrize(("thing", "name", "returns"), METHODS, ids=lambda value: value if type(value) is str else "")
def test_methods_without_arguments(thing: Any, name: str, returns: str) -> None:
    cls = type(thing)
    signature = f"(self: {MODULE}.{cls.__name__}) -> {returns}"
    shown = f"<{MODULE}.{cls.__name__} object at 0x>"
    bound, unbound = getattr(thing, name), getattr(cls, name)
    assert text_of(TypeError, lambda: bound(1)) == refusal(name, signature, f"{shown}, 1")
    assert text_of(TypeError, lambda: bound(x=1)) == refusal(name, signature, f"{shown}; kwargs: x=1")
    assert text_of(TypeError, unbound) == refusal(name, signature, "")
    assert text_of(TypeError, lambda: unbound(3)) == refusal(name, signature, "3")


def test_methods_of_subclasses() -> None:
    class Mine(pb_utils.Tensor):
        pass

    assert Mine("M", np.zeros(1)).name() == "M" and pb_utils.Tensor.shape(Mine("M", np.zeros(1))) == [1]


@pytest.mark.parametrize("thing", [TENSOR, REQUEST, RESPONSE], ids=["as_numpy", "inputs", "output_tensors"])
def test_methods_of_every_request_refuse_in_python_s_words(thing: Any) -> None:
    call = getattr(thing, {TENSOR: "as_numpy", REQUEST: "inputs", RESPONSE: "output_tensors"}[thing])
    with pytest.raises(TypeError):
        call(1)


DLPACK = f"(self: {MODULE}.Tensor, stream: object = None) -> capsule"
FROM_DLPACK = f"(self: str, arg0: object) -> {MODULE}.Tensor"


@pytest.mark.parametrize(
    ("args", "named", "invoked"),
    [
        ((1, 2), {}, ", 1, 2"),
        ((), {"max_version": 1}, "; kwargs: max_version=1"),
        ((1,), {"stream": 1}, ", 1; kwargs: stream=1"),
    ],
)
def test_dlpack_arguments(args: Any, named: Any, invoked: str) -> None:
    want = refusal("__dlpack__", DLPACK, f"<{MODULE}.Tensor object at 0x>{invoked}")
    assert text_of(TypeError, lambda: TENSOR.__dlpack__(*args, **named)) == want


def test_dlpack_stream_is_ignored() -> None:
    for capsule in (TENSOR.__dlpack__(), TENSOR.__dlpack__(5), TENSOR.__dlpack__(stream=None)):
        assert type(capsule).__name__ == "PyCapsule"


@pytest.mark.parametrize(
    ("args", "named", "invoked"),
    [((), {}, ""), (("a",), {}, "'a'"), ((1, 2), {}, "1, 2"), ((), {"name": "a"}, "kwargs: name='a'")],
)
def test_from_dlpack_arguments(args: Any, named: Any, invoked: str) -> None:
    want = refusal("from_dlpack", FROM_DLPACK, invoked)
    assert text_of(TypeError, lambda: pb_utils.Tensor.from_dlpack(*args, **named)) == want


LOG = f"(message: str, level: {MODULE}.Logger.LogLevel = <LogLevel.INFO: 0>) -> None"
CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, ""),
    ((None,), {}, "None"),
    ((), {"msg": "x"}, "kwargs: msg='x'"),
    (("a",), {"message": "b"}, "'a'; kwargs: message='b'"),
]


@pytest.mark.parametrize(("args", "named", "invoked"), [*CALLS, (("a", "b"), {}, "'a', 'b'")])
@pytest.mark.parametrize("name", ["log_info", "log_warn", "log_error", "log_verbose"])
def test_logger_arguments(name: str, args: Any, named: Any, invoked: str) -> None:
    want = refusal(name, "(message: str) -> None", invoked)
    assert text_of(TypeError, lambda: getattr(pb_utils.Logger, name)(*args, **named)) == want


@pytest.mark.parametrize(
    ("args", "named", "invoked"),
    [
        *CALLS,
        (("a", 3), {}, "'a', 3"),
        ((), {"message": "a", "level": 3}, "kwargs: message='a', level=3"),
        (("a", LEVEL.INFO, 5), {}, "'a', <LogLevel.INFO: 0>, 5"),
    ],
)
def test_log_arguments(args: Any, named: Any, invoked: str) -> None:
    log: Any = pb_utils.Logger.log
    assert text_of(TypeError, lambda: log(*args, **named)) == refusal("log", LOG, invoked)


RESPONSES = (
    f"{MODULE}.InferenceResponse(output_tensors: List[{MODULE}.Tensor] = [], error: {MODULE}.TritonError = None, "
    "parameters: object = None)"
)
REQUESTS = (
    f"{MODULE}.InferenceRequest(request_id: str = '', correlation_id: object = 0, "
    "inputs: List[triton::backend::python::PbTensor], requested_output_names: List[str], model_name: str, "
    "model_version: int = -1, flags: int = 0, timeout: int = 0, "
    f"preferred_memory: {MODULE}.PreferredMemory = <{MODULE}.PreferredMemory object at 0x>, "
    f"trace: {MODULE}.InferenceTrace = <{MODULE}.InferenceTrace object at 0x>, parameters: object = None)"
)
ERRORS = f"{MODULE}.TritonError(message: str, code: {MODULE}.TritonError.__ErrorCode = <__ErrorCode.INTERNAL: 1>)"
TENSORS = f"{MODULE}.Tensor(arg0: str, arg1: numpy.ndarray)"
NEEDED = {"inputs": [], "requested_output_names": [], "model_name": "m"}
NEEDED_SHOWN = "kwargs: inputs=[], requested_output_names=[], model_name='m'"


@pytest.mark.parametrize(
    ("cls", "signature", "args", "named", "invoked"),
    [
        (pb_utils.InferenceResponse, RESPONSES, ([],), {"error": "x"}, "[]; kwargs: error='x'"),
        (pb_utils.InferenceResponse, RESPONSES, ([], "x"), {}, "[], 'x'"),
        (pb_utils.InferenceResponse, RESPONSES, (None,), {}, "None"),
        (pb_utils.InferenceResponse, RESPONSES, (), {"output_tensors": None}, "kwargs: output_tensors=None"),
        (pb_utils.InferenceResponse, RESPONSES, ([],), {"output_tensors": []}, "[]; kwargs: output_tensors=[]"),
        (pb_utils.InferenceResponse, RESPONSES, ([], None, None, 1), {}, "[], None, None, 1"),
        (pb_utils.InferenceResponse, RESPONSES, (), {"output_tensors": [], "foo": 1}, "kwargs: output_tensors=[], foo=1"),
        (pb_utils.InferenceRequest, REQUESTS, (), {}, ""),
        (pb_utils.InferenceRequest, REQUESTS, ("a", 1), {}, "'a', 1"),
        (pb_utils.InferenceRequest, REQUESTS, ("a",), {"request_id": "b"}, "'a'; kwargs: request_id='b'"),
        (pb_utils.InferenceRequest, REQUESTS, (), {**NEEDED, "trace": None}, f"{NEEDED_SHOWN}, trace=None"),
        (pb_utils.InferenceRequest, REQUESTS, (), {**NEEDED, "preferred_memory": None}, f"{NEEDED_SHOWN}, preferred_memory=None"),
        (pb_utils.TritonError, ERRORS, ("a", 3), {}, "'a', 3"),
        (pb_utils.TritonError, ERRORS, (), {}, ""),
        (pb_utils.Tensor, TENSORS, (), {}, ""),
        (pb_utils.Tensor, TENSORS, ("a",), {}, "'a'"),
        (pb_utils.Tensor, TENSORS, ("a", None), {}, "'a', None"),
        (pb_utils.Tensor, TENSORS, ("a", 1, 2), {}, "'a', 1, 2"),
        (pb_utils.Tensor, TENSORS, (), {"name": "a", "array": 1}, "kwargs: name='a', array=1"),
        (CODE, f"{MODULE}.TritonError.__ErrorCode(value: int)", (), {}, ""),
        (CODE, f"{MODULE}.TritonError.__ErrorCode(value: int)", (-1,), {}, "-1"),
        (CODE, f"{MODULE}.TritonError.__ErrorCode(value: int)", (1, 2), {}, "1, 2"),
        (LEVEL, f"{MODULE}.Logger.LogLevel(value: int)", (2**32,), {}, "4294967296"),
        (LEVEL, f"{MODULE}.Logger.LogLevel(value: int)", ("a",), {}, "'a'"),
    ],
)  # fmt: skip
def test_constructor_arguments(cls: Any, signature: str, args: Any, named: Any, invoked: str) -> None:
    want = refusal("__init__", signature, invoked, "constructor")
    assert text_of(TypeError, lambda: cls(*args, **named)) == want


@pytest.mark.parametrize("thing", [TENSOR, REQUEST, RESPONSE, ERROR, ERROR.code(), LEVEL.INFO, REQUEST.trace()])
def test_missing_attributes(thing: Any) -> None:
    name = type(thing).__name__
    assert "." not in name and type(thing).__module__ == MODULE
    want = f"'{MODULE}.{name}' object has no attribute 'foo'"
    assert text_of(AttributeError, lambda: thing.foo) == want
    assert text_of(AttributeError, lambda: setattr(thing, "foo", 1)).startswith(want)
    assert text_of(AttributeError, lambda: type(thing).foo) == f"type object '{MODULE}.{name}' has no attribute 'foo'"


def test_names_of_classes() -> None:
    assert pb_utils.Tensor.__name__ == "Tensor" and repr(pb_utils.Tensor) == f"<class '{MODULE}.Tensor'>"
    assert repr(LEVEL) == f"<class '{MODULE}.Logger.LogLevel'>"
    assert CODE.__name__ == "__ErrorCode" and repr(CODE) == f"<class '{MODULE}.TritonError.__ErrorCode'>"

    class Mine(pb_utils.Tensor):
        pass

    mine: Any = Mine("M", np.zeros(1))
    assert text_of(AttributeError, lambda: mine.foo) == "'Mine' object has no attribute 'foo'"
    Mine.__name__ = "Yours"
    assert Mine.__name__ == "Yours"


def test_order_of_codes() -> None:
    one: Any = pb_utils.TritonError.INTERNAL
    kind = f"'{MODULE}.__ErrorCode'"
    assert text_of(TypeError, lambda: one < one) == f"'<' not supported between instances of {kind} and {kind}"
    assert text_of(TypeError, lambda: one >= 1) == f"'>=' not supported between instances of {kind} and 'int'"


def test_members() -> None:
    assert list(CODE.__members__) == list(CODE.names) and CODE.__members__["NOT_FOUND"] == 2
    assert repr(LEVEL.__members__) == (
        "{'INFO': <LogLevel.INFO: 0>, 'WARNING': <LogLevel.WARNING: 1>, 'ERROR': <LogLevel.ERROR: 2>, "
        "'VERBOSE': <LogLevel.VERBOSE: 3>}"
    )
    assert LEVEL.INFO.__members__ == LEVEL.__members__ and CODE.INTERNAL is CODE.INTERNAL
    CODE.__members__.clear()
    assert len(CODE.__members__) == 8


def test_members_without_a_name() -> None:
    code = CODE(20)
    assert repr(code) == "<__ErrorCode.???: 20>" and str(code) == "__ErrorCode.???" and code.name == "???"
    assert repr(LEVEL(2**32 - 1)) == "<LogLevel.???: 4294967295>" and CODE(value=3) == CODE.INVALID_ARG
    error = pb_utils.TritonError("bad", code)
    assert error.code() == 20 and error._code == 0  # sent as UNKNOWN


def test_level_without_a_name_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    pb_utils.Logger.log("quiet", LEVEL(20))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("data", "needed", "wanted", "at"),
    [(b"\1\0\0", 4, 4, 0), (b"\1\0\0\0", 5, 1, 4), (b"\5\0\0\0ab", 9, 5, 4), (b"\2\0\0\0ab\1\0\0", 10, 4, 6)],
)
def test_truncated_bytes(data: bytes, needed: int, wanted: int, at: int) -> None:
    want = (
        f"unpack_from requires a buffer of at least {needed} bytes for unpacking {wanted} bytes at offset {at} "
        f"(actual buffer size is {len(data)})"
    )
    assert text_of(struct.error, lambda: pb_utils.deserialize_bytes_tensor(data)) == want


def test_unknown_attributes_and_imports() -> None:
    for name in ("triton_python_backend_utils", MODULE):
        module = importlib.import_module(name)
        assert text_of(AttributeError, lambda: module.foo) == f"module '{name}' has no attribute 'foo'"  # noqa: B023
        text = text_of(ImportError, lambda: exec(f"from {name} import foo", {}))  # noqa: B023
        assert text.startswith(f"cannot import name 'foo' from '{name}'")


@pytest.mark.parametrize(
    "name",
    [
        "Tensor",
        "InferenceRequest",
        "InferenceResponse",
        "InferenceTrace",
        "Logger",
        "Metric",
        "MetricFamily",
        "MetricKind",
        "TritonError",
    ],
)
def test_type_hints(name: str) -> None:
    cls = getattr(c, name)
    assert typing.get_type_hints(cls) == {}
    for member in vars(cls).values():
        function = getattr(member, "__func__", member)
        if callable(function) and not isinstance(function, type):
            typing.get_type_hints(function)
    assert typing.get_type_hints(pb_utils.Tensor.shape)["return"] == typing.List[int]


def test_type_hints_of_functions() -> None:
    for name in pb_utils.__all__:
        value = getattr(pb_utils, name)
        if getattr(value, "__module__", "") == "triton_python_backend_utils":
            typing.get_type_hints(value)
