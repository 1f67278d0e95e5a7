"""The functions and constants of triton_python_backend_utils."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import InferenceRequest, InferenceResponse, Tensor

CONFIG: dict[str, Any] = {
    "input": [{"name": "A", "data_type": "TYPE_FP32"}, {"name": "B"}],
    "output": [{"name": "C"}],
    "model_transaction_policy": {"decoupled": True},
}


def test_tensors_by_name() -> None:
    first, second, other = (Tensor(name, np.zeros(1)) for name in ("A", "A", "B"))
    request = InferenceRequest(inputs=[first, second, other], requested_output_names=[], model_name="m")
    assert pb_utils.get_input_tensor_by_name(request, "A") is first
    assert pb_utils.get_input_tensor_by_name(request, "B") is other
    assert pb_utils.get_input_tensor_by_name(request, "C") is None
    response = InferenceResponse([first, other])
    assert pb_utils.get_output_tensor_by_name(response, "B") is other
    assert pb_utils.get_output_tensor_by_name(response, "C") is None


def test_tensors_by_name_of_other_classes() -> None:
    class Mine(Tensor):
        def name(self) -> str:
            return "mine"

    class Asked(InferenceRequest):
        def inputs(self) -> list[Tensor]:
            return [other]

    mine, other = Mine("A", np.zeros(1)), Tensor("B", np.zeros(1))
    request = InferenceRequest(inputs=[mine, other], requested_output_names=[], model_name="m")
    assert pb_utils.get_input_tensor_by_name(request, "mine") is mine
    assert pb_utils.get_input_tensor_by_name(request, "A") is None
    asked = Asked(inputs=[mine], requested_output_names=[], model_name="m")
    assert pb_utils.get_input_tensor_by_name(asked, "B") is other
    undecodable = InferenceResponse([Tensor(b"\xff", np.zeros(1)), other])
    with pytest.raises(UnicodeDecodeError):
        pb_utils.get_output_tensor_by_name(undecodable, "B")


def test_configs_by_name() -> None:
    assert pb_utils.get_input_config_by_name(CONFIG, "B") == {"name": "B"}
    assert pb_utils.get_output_config_by_name(CONFIG, "C") == {"name": "C"}
    assert pb_utils.get_output_config_by_name(CONFIG, "A") is None
    assert pb_utils.get_input_config_by_name({}, "A") is None


def test_decoupled_follows_the_config() -> None:
    assert pb_utils.using_decoupled_model_transaction_policy(CONFIG) is True
    assert pb_utils.using_decoupled_model_transaction_policy({}) is False
    with pytest.raises(KeyError):
        pb_utils.using_decoupled_model_transaction_policy({"model_transaction_policy": {}})


TYPES = {
    1: np.bool_, 2: np.uint8, 3: np.uint16, 4: np.uint32, 5: np.uint64, 6: np.int8, 7: np.int16, 8: np.int32,
    9: np.int64, 10: np.float16, 11: np.float32, 12: np.float64, 13: np.object_,
}  # fmt: skip


def test_types_by_number() -> None:
    for number, kind in TYPES.items():
        assert pb_utils.triton_to_numpy_type(number) is kind
        assert pb_utils.numpy_to_triton_type(kind) == number
        if number != 13:
            assert pb_utils.numpy_to_triton_type(np.dtype(kind)) == number
    for number in (0, 14, 99):
        assert pb_utils.triton_to_numpy_type(number) is None
    assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
    others: list[Any] = [np.dtype("S3"), np.dtype("U3"), "TYPE_FP32", np.complex64, bool, int, float]
    for other in others:
        assert pb_utils.numpy_to_triton_type(other) is None


def test_types_by_name() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_FP16") is np.float16
    for name in ("TYPE_BF16", "FP32", ""):
        with pytest.raises(KeyError):
            pb_utils.triton_string_to_numpy(name)
    assert len(pb_utils.TRITON_STRING_TO_NUMPY) == 13


def test_bytes_serialised() -> None:
    array = np.array([[b"ab", "é"], [7, None]], np.object_)
    want = b"\2\0\0\0ab" + b"\2\0\0\0" + "é".encode() + b"\1\0\0\x007" + b"\4\0\0\0None"
    assert pb_utils.serialize_byte_tensor(array) == want
    assert pb_utils.serialize_byte_tensor(np.array([b"a\0", b"bc"])) == b"\1\0\0\0a\2\0\0\0bc"
    assert pb_utils.serialize_byte_tensor(np.array([], np.object_)) == ()
    assert pb_utils.serialize_byte_tensor(np.array([1])) is None
    assert pb_utils.serialize_byte_tensor(np.array(["a"])) is None


@pytest.mark.parametrize("elements", [[], [b""], [b"ab", b"cd"], [b"a", b"", b"bcd"], [b"x" * 2000, b"y"]])
def test_bytes_there_and_back(elements: list[bytes]) -> None:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    data = pb_utils.serialize_byte_tensor(array) or b""
    got = pb_utils.deserialize_bytes_tensor(data)
    assert got.dtype == np.object_ and got.shape == (len(elements),) and got.tolist() == elements


@pytest.mark.parametrize("data", [b"\1", b"\5\0\0\0abc", b"\1\0\0\0a\0\0"])
def test_bytes_that_end_too_early(data: bytes) -> None:
    with pytest.raises(struct.error):
        pb_utils.deserialize_bytes_tensor(data)


def test_constants_have_their_numbers() -> None:
    assert (pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) == (
        1,
        2,
    )
    assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
    assert (pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL, pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) == (1, 2)


def test_modules_reachable_by_accident() -> None:
    assert pb_utils.json.loads("1") == 1 and pb_utils.np is np and pb_utils.struct is struct
