"""Tensor: a named array, an input or output of a model."""

from __future__ import annotations

from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple, Union

import numpy as np

from . import runtime, strings
from .binding import MODULE, NOTHING, Bound, Mismatch, Text, as_text, checked, from_text, incompatible
from .datatypes import BF16, BFLOAT16, BYTES, CODES, NUMPY, STORAGE, bfloat16
from .error import TritonModelException
from .memory import DeviceMemory
from .runtime import Origin

_EMPTY_NAME = "Tensor name cannot be an empty string."
_SIGNATURE = (f"{MODULE}.Tensor(arg0: str, arg1: numpy.ndarray)",)
_FROM_DLPACK = (f"(self: str, arg0: object) -> {MODULE}.Tensor",)

_DLPACK = (f"(self: {MODULE}.Tensor, stream: object = None) -> capsule",)

_ndarray = np.ndarray
_code = CODES.get


#: Advice for arrays of unsupported dtypes, by kind.
_REMEDIES = {
    "U": "send strings as objects: array.astype(object)",
    "M": "send it as a number: array.astype(np.int64)",
    "m": "send it as a number: array.astype(np.int64)",
    "c": "send the real and the imaginary part as two outputs",
    "f": "send it in another precision: array.astype(np.float64)",
    "V": "send each of its fields as an output",
}
#: The dtypes that have been logged. Models may probe dtypes and catch the exception.
_told: Set[str] = set()
_MOST_TOLD = 16


def _unsupported(dtype: np.dtype) -> TritonModelException:
    """Make Triton's exception, and log the details once, for the line that makes the Tensor."""
    name = str(dtype)
    if name not in _told and len(_told) < _MOST_TOLD:
        _told.add(name)
        remedy = _REMEDIES.get(dtype.kind, "")
        if not dtype.isnative:
            remedy = "convert it to this machine's byte order: array.astype(array.dtype.newbyteorder('='))"
        file, line = runtime.caller(2)
        text = f"a Tensor cannot have the NumPy dtype {name}" + (remedy and f"; {remedy}")
        runtime.current().log(runtime.WARNING, file, line, text)
    return TritonModelException("NumPy dtype is not supported.")


@checked(
    name="str",
    shape="List[int]",
    triton_dtype="TRITONSERVER_datatype_enum",
    is_cpu="bool",
    to_dlpack="capsule",
    __dlpack_device__="Tuple[int, int]",
)
class Tensor(Bound):
    """A named array. Models make it from numpy or DLPack; the stub makes inputs by filling slots.

    Location of the bytes: an input has `_origin`, which is an Origin or the bytes of its frame, in
    which `_offset` and `_size` delimit it. All others have `_data`: the array, read when the tensor
    is sent; the serialised elements of a BYTES tensor; or device memory. An input gets `_data` when
    it is exported through DLPack, because writes by the consumer must be sent.

    `_sent` is the stub's encoding from the first send, used again for later ones.
    """

    __module__ = MODULE
    __slots__ = ("_array", "_code", "_data", "_element", "_name", "_offset", "_origin", "_sent", "_shape", "_size")

    _array: Optional[np.ndarray]  # the result of as_numpy, after its first call
    _code: int  # Triton's number of the data type
    _data: Union[np.ndarray, bytes, DeviceMemory, None]
    _element: int  # BYTES: 1 + the length of all elements, 0 if unknown
    _name: Text
    _offset: int
    _origin: Union[bytes, Origin, None]
    _sent: Any  # private to the stub
    _shape: Tuple[int, ...]
    _size: int  # bytes of an input

    # Called for each output of each response, so exact type checks come before conversions.
    def __init__(self, name: Any = NOTHING, array: Any = NOTHING, /, *rest: Any, **named: Any) -> None:
        if rest or named:
            raise _incompatible(name, array, rest, named)
        if name.__class__ is not str or not name.isascii():
            try:
                name = as_text(name)
            except Mismatch:
                raise _incompatible(name, array, rest, named) from None
        plain = array.__class__ is _ndarray
        if not plain and not isinstance(array, _ndarray):
            raise _incompatible(name, array, rest, named)
        if not name:
            raise TritonModelException(_EMPTY_NAME)
        code = _code(array.dtype)
        if code is None:
            if array.dtype.char == "S":
                code = BYTES
            elif array.dtype.name == BFLOAT16:
                code = CODES[array.dtype] = BF16
            else:
                raise _unsupported(array.dtype)
        # A masked array's data is not a memoryview: it must fail here with an AttributeError, as in
        # Triton.
        if not (array.flags.c_contiguous if plain else array.data.c_contiguous):
            array = np.ascontiguousarray(array)
        self._name = name
        self._code = code
        self._shape = array.shape
        self._array = array
        self._origin = None
        self._sent = None
        if code == BYTES:
            self._data, self._element = strings.encode(array)
        else:
            self._data = array
            self._element = 0

    def name(self) -> str:
        name = self._name
        return name if isinstance(name, str) else from_text(name)

    def shape(self) -> List[int]:
        return list(self._shape)

    def triton_dtype(self) -> int:
        """Return the number of the data type. Triton 2.73 raises a TypeError here."""
        return self._code

    def is_cpu(self) -> bool:
        return not isinstance(self._data, DeviceMemory)

    def as_numpy(self) -> np.ndarray:
        """Return the tensor as an array, always the same object.

        An input's is private and writable. A tensor on a device is copied to the host, after the
        work queued in its legacy default stream.
        """
        array = self._array
        if array is None:
            array = self._array = self._load()
        return array

    def _load(self) -> np.ndarray:
        data = self._data
        if isinstance(data, DeviceMemory) and not runtime.current().converts_device_tensors():
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        code = self._code
        dtype = NUMPY[code] if code != BF16 else bfloat16()
        if dtype is None:
            raise TritonModelException(
                "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
            )
        copy: np.ndarray
        if isinstance(data, DeviceMemory):
            copy = np.empty(self._shape, dtype)
            data.copy_to_host(copy.__array_interface__["data"][0])
            return copy
        if isinstance(data, np.ndarray):  # BF16 from DLPack
            copy = data.view(dtype).copy()
            return copy
        origin = self._origin
        assert origin is not None
        if code == BYTES:
            try:
                return strings.decode(self._bytes()).reshape(self._shape)
            except strings.Malformed as error:
                raise TritonModelException(str(error)) from None
        if isinstance(origin, bytes):
            at = self._offset
            array: np.ndarray = np.ndarray(self._shape, dtype, bytearray(origin[at : at + self._size]))
            return array
        return origin.array(self.name(), dtype, self._shape)

    def _bytes(self) -> bytes:
        """Return an input's bytes as they arrived."""
        origin = self._origin
        if isinstance(origin, bytes):
            return origin[self._offset : self._offset + self._size]
        assert origin is not None
        return origin.read()

    def _memory(self) -> np.ndarray:
        """Return the array shared with DLPack consumers: as_numpy's only if the model made that."""
        data = self._data
        if data is None:
            dtype = STORAGE[self._code]
            assert dtype is not None
            origin = self._origin
            if isinstance(origin, bytes):
                data = np.ndarray(self._shape, dtype, bytearray(self._bytes()))
            else:
                assert origin is not None
                data = origin.array(self.name(), dtype, self._shape)
            self._data = data
        assert isinstance(data, np.ndarray)
        return data.view(np.uint16) if self._code == BF16 else data

    def to_dlpack(self) -> object:
        """Return a capsule of the tensor's memory, which keeps the tensor alive until released."""
        from . import dlpack  # ctypes is only loaded if needed

        if self._code == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        data = self._data
        if isinstance(data, DeviceMemory):
            return dlpack.export_device(self, data, self._shape, self._code)
        return dlpack.export(self, self._memory(), self._code)

    def __dlpack__(self, *args: Any, **named: Any) -> object:
        """Like to_dlpack; the only argument, `stream`, is ignored."""
        if len(args) + len(named) > 1 or (named and "stream" not in named):
            raise incompatible("__dlpack__", _DLPACK, (self, *args), named)
        return self.to_dlpack()

    def __dlpack_device__(self) -> Tuple[int, int]:
        data = self._data
        return (2, data.device) if isinstance(data, DeviceMemory) else (1, 0)

    @staticmethod
    def from_dlpack(*args: Any, **named: Any) -> Tensor:
        """Make a tensor over another library's memory: `from_dlpack(name, capsule_or_tensor)`.

        The memory is read when the tensor is sent. For CPU memory, as_numpy returns a snapshot
        taken now.
        """
        from . import dlpack

        try:
            if named or len(args) != 2:
                raise Mismatch
            name = as_text(args[0])
        except Mismatch:
            raise incompatible("from_dlpack", _FROM_DLPACK, args, named) from None
        if not name:
            raise TritonModelException(_EMPTY_NAME)
        code, shape, memory = dlpack.consume(args[1])
        tensor = Tensor.__new__(Tensor)
        tensor._name = name
        tensor._code = code
        tensor._shape = shape
        tensor._array = None
        if isinstance(memory, np.ndarray) and NUMPY[code] is not None:
            tensor._array = memory.copy()
        tensor._data = memory
        tensor._element = 0
        tensor._origin = None
        tensor._sent = None
        return tensor

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(4)


def _incompatible(name: object, array: object, rest: Tuple[object, ...], named: Dict[str, Any]) -> TypeError:
    args = tuple(arg for arg in (name, array) if arg is not NOTHING) + rest
    return incompatible("__init__", _SIGNATURE, args, named)
