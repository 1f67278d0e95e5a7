"""Tensor: accepted values, kept bytes, results."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from c_python_backend_utils import strings, tensor
from c_python_backend_utils.datatypes import BF16, CODES, NUMPY, STORAGE
from inputs import incoming
from triton_python_backend_utils import Tensor, TritonModelException

NUMERIC = [
    np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64,
    np.float16, np.float32, np.float64,
]  # fmt: skip


@pytest.mark.parametrize(("number", "kind"), list(enumerate(NUMERIC, 1)))
def test_numeric_array_is_kept_by_reference(number: int, kind: Any) -> None:
    array = np.ones((2, 3), kind)
    tensor = Tensor("X", array)
    assert tensor.as_numpy() is array
    assert tensor.triton_dtype() == number
    assert tensor.shape() == [2, 3]
    assert tensor.name() == "X"
    assert tensor.is_cpu() is True


@pytest.mark.parametrize("alias", [np.longlong, np.intc, np.ulonglong, np.byte, np.double])
def test_aliases_of_the_platform_are_accepted(alias: Any) -> None:
    array = np.zeros(3, alias)
    assert NUMPY[Tensor("X", array).triton_dtype()] == array.dtype


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.zeros(2, np.complex64),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "V4"),
        np.zeros(2, [("a", np.int32)]),
        np.zeros(2, np.longdouble),
        np.zeros(2, ">i4"),
    ],
    ids=["unicode", "complex", "datetime", "void", "structured", "long double", "foreign order"],
)
def test_other_dtypes_are_refused(array: np.ndarray) -> None:
    with pytest.raises(TritonModelException, match=r"^NumPy dtype is not supported\.$"):
        Tensor("X", array)


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.array(["text"]), "<U4; send strings as objects: array.astype(object)"),
        (np.zeros(2, ">i4"), ">i4; convert it to this machine's byte order: array.astype("),
        (np.zeros(2, np.complex64), "complex64; send the real and the imaginary part as two outputs"),
    ],
    ids=["unicode", "foreign order", "complex"],
)
def test_the_remedy_for_other_dtypes_is_logged_once(
    array: np.ndarray, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tensor, "_told", set())
    for _ in range(2):
        with pytest.raises(TritonModelException):
            Tensor("X", array)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and f"a Tensor cannot have the NumPy dtype {told}" in lines[0], lines
    assert " test_tensor.py:" in lines[0]


@pytest.mark.parametrize(
    "args",
    [(), ("X",), ("X", [1]), ("X", np.float32(1)), ("X", None), ("", None), (1, np.zeros(1)), (None, np.zeros(1))],
)
def test_wrong_arguments_are_a_type_error(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\. The following argument"):
        Tensor(*args)


def test_arguments_have_no_names() -> None:
    with pytest.raises(TypeError, match="Invoked with: kwargs: name='X'"):
        Tensor(name="X", array=np.zeros(1))


def test_empty_name_is_refused_after_the_types_and_before_the_dtype() -> None:
    with pytest.raises(TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
        Tensor("", np.zeros(1, np.complex64))


def test_name_may_be_bytes() -> None:
    assert Tensor(b"X", np.zeros(1)).name() == "X"
    assert Tensor(bytearray(b"X"), np.zeros(1)).name() == "X"
    tensor = Tensor(b"\xff", np.zeros(1))
    with pytest.raises(UnicodeDecodeError):
        tensor.name()
    with pytest.raises(TypeError):
        Tensor("\udcff", np.zeros(1))


def test_non_contiguous_array_is_copied() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (array[:, ::2], array.T, array[::-1]):
        tensor = Tensor("X", view)
        assert tensor.as_numpy() is not view
        assert tensor.as_numpy().flags.c_contiguous
        np.testing.assert_array_equal(tensor.as_numpy(), view)


def test_subclasses_of_arrays() -> None:
    matrix = np.zeros((1, 2)).view(np.matrix)
    assert Tensor("X", matrix).as_numpy() is matrix
    with pytest.raises(AttributeError):
        Tensor("X", np.ma.masked_array([1, 2]))


def test_scalars_and_nothing() -> None:
    assert Tensor("X", np.array(5)).shape() == []
    assert Tensor("X", np.zeros((3, 0, 2))).shape() == [3, 0, 2]


def test_shape_is_a_new_list_each_time() -> None:
    tensor = Tensor("X", np.zeros((2, 3)))
    tensor.shape().append(7)
    assert tensor.shape() == [2, 3]


def test_tensors_reject_copies_and_attributes() -> None:
    tensor: Any = Tensor("X", np.zeros(1))
    with pytest.raises(AttributeError):
        tensor.extra = 1
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"^cannot pickle 'c_python_backend_utils\.Tensor' object$"):
            act(tensor)
    assert tensor == tensor and tensor != Tensor("X", np.zeros(1))
    assert hash(tensor) == hash(tensor)
    assert repr(tensor).startswith("<c_python_backend_utils.Tensor object at 0x")
    assert Tensor.__module__ == "c_python_backend_utils"


def test_classes_can_be_subclassed() -> None:
    class Named(Tensor):
        pass

    named: Any = Named("X", np.zeros(1))
    named.extra = 1
    assert named.name() == "X"


class TestBytes:
    def test_elements_become_bytes_when_sent(self) -> None:
        array = np.array([b"a\0", "é", 5, None, np.bytes_(b"q"), bytearray(b"z")], np.object_)
        tensor = Tensor("X", array)
        assert tensor.as_numpy() is array
        assert strings.decode(tensor._data).tolist() == [  # type: ignore[arg-type]  # serialised at construction
            b"a\0", "é".encode(), b"5", b"None", b"b'q'", b"bytearray(b'z')",
        ]  # fmt: skip

    def test_is_serialised_at_construction(self) -> None:
        array = np.array([b"before"], np.object_)
        tensor = Tensor("X", array)
        array[0] = b"after"
        assert strings.decode(tensor._data).tolist() == [b"before"]  # type: ignore[arg-type]

    def test_fixed_width(self) -> None:
        tensor = Tensor("X", np.array([b"ab", b"c\0"]))
        assert tensor.triton_dtype() == 13
        assert strings.decode(tensor._data).tolist() == [b"ab", b"c"]  # type: ignore[arg-type]

    def test_common_length_is_noted(self) -> None:
        assert Tensor("X", np.array([b"ab", b"cd"], np.object_))._element == 3
        assert Tensor("X", np.array([b"", b""], np.object_))._element == 1
        assert Tensor("X", np.array([b"ab", b"c"], np.object_))._element == 0
        assert Tensor("X", np.array([], np.object_))._element == 0

    @pytest.mark.parametrize(
        "elements",
        [
            [b"\1\0\0\0s", b"\1\0\0\0t", b"\5\0\0\0s"],  # contents that look like lengths
            [b"abc", b"de", b"fgh"],  # the ends agree, the middle does not
            [b"abc", b"de", b"fghi", b"jkl"],  # the sum of lengths agrees too
            [b"s\2\0\0\0", b"", b"s\2\0\0\0ab\0\0\0", b"s\2\0\0\0"],
            ["ab", "cd"],
            ["é", "ab"],
            [b"ab", np.bytes_(b"cd"), b"ef"],  # as text, which is longer
            [b"ab", bytearray(b"cd"), b"ef"],
            [b"x" * 256, b"y" * 256],
            [b"x" * 257, b"y" * 257],
            [b"same"] * 3,
        ],
    )
    def test_elements_are_serialised_with_their_length(self, elements: list[Any]) -> None:
        texts = [e if type(e) is bytes else str(e).encode() for e in elements]
        array = np.empty(len(elements), np.object_)
        array[:] = elements
        data, length = strings.encode(array)
        assert data == b"".join(len(e).to_bytes(4, "little") + e for e in texts)
        assert length == (len(texts[0]) + 1 if len(set(map(len, texts))) == 1 else 0)

    @pytest.mark.parametrize(
        "elements", [[], [b""], [b"", b""], [b"abc", b"def"], [b"a\0", b"\0\0"], [b"a", b"bc", b""], [b"x" * 5000] * 3]
    )
    def test_incoming_elements_are_bytes(self, elements: list[bytes]) -> None:
        data = b"".join(len(e).to_bytes(4, "little") + e for e in elements)
        tensor = incoming(13, (len(elements),), data, before=b"something else")
        array = tensor.as_numpy()
        assert array.dtype == np.object_ and array.tolist() == elements
        assert all(type(e) is bytes for e in array)
        assert tensor.as_numpy() is array

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\1", "Invalid bytes tensor data: incomplete length field"),
            (b"\1\0\0\0a\1\0", "Invalid bytes tensor data: incomplete length field"),
            (b"\2\0\0\0a", "Invalid bytes tensor data: string extends beyond buffer"),
            (b"\xff\xff\xff\xff", "Invalid bytes tensor data: string extends beyond buffer"),
        ],
    )
    def test_malformed_bytes_are_refused(self, data: bytes, text: str) -> None:
        with pytest.raises(TritonModelException, match=text):
            incoming(13, (1,), data).as_numpy()


class TestIncoming:
    @pytest.mark.parametrize("kind", NUMERIC)
    def test_array_is_private_and_writable(self, kind: Any) -> None:
        source = np.ones((2, 2), kind)
        tensor = incoming(CODES[source.dtype], (2, 2), source.tobytes(), before=bytes(16))
        array = tensor.as_numpy()
        assert array.dtype == source.dtype and array.flags.writeable and array.flags.c_contiguous
        np.testing.assert_array_equal(array, source)
        array[...] = 0
        assert tensor.as_numpy() is array
        assert tensor._bytes() == source.tobytes()

    def test_no_elements_keep_their_shape(self) -> None:
        assert incoming(11, (0, 3), b"").as_numpy().shape == (0, 3)

    def test_array_outlives_the_tensor(self) -> None:
        array = incoming(8, (3,), np.arange(3, dtype=np.int32).tobytes()).as_numpy()
        assert array.tolist() == [0, 1, 2]

    def test_bf16_needs_a_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tensor, "bfloat16", lambda: None)
        with pytest.raises(TritonModelException, match=r"^Tensor dtype is BF16 and cannot be converted to NumPy\. Use"):
            incoming(BF16, (2,), bytes(4)).as_numpy()

    def test_bf16_arrays_are_those_of_ml_dtypes(self) -> None:
        array = incoming(BF16, (2,), b"\x80\x3f\x00\x40").as_numpy()
        assert array.dtype.name == "bfloat16" and array.astype(np.float32).tolist() == [1, 2]
        assert array.flags.writeable
        for source in (array, array.reshape(2, 1)[::-1], array[:0], array[1:]):
            made = Tensor("X", source)
            assert made.triton_dtype() == BF16 and made.shape() == list(source.shape)
            assert made.as_numpy().tolist() == source.tolist()
        shared = np.array([0x3F80, 0x4040], np.uint16)
        capsule = Tensor("X", shared.view(array.dtype)).to_dlpack()
        again = Tensor.from_dlpack("Y", capsule)
        assert again.triton_dtype() == BF16
        assert again.as_numpy().astype(np.float32).tolist() == [1, 3]
        assert again.as_numpy() is again.as_numpy()


def test_tables_agree() -> None:
    for code, dtype in enumerate(NUMPY):
        if dtype is not None:
            assert CODES[dtype] == code
            assert code == 13 or STORAGE[code] == dtype
