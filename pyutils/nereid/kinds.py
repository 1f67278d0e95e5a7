"""How values of an annotation become tensors, and tensors values."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Callable, List, Tuple, Union

import numpy as np

#: The config's data type by numpy's dtype.
TYPES = {
    np.dtype(np.bool_): "TYPE_BOOL",
    np.dtype(np.uint8): "TYPE_UINT8",
    np.dtype(np.uint16): "TYPE_UINT16",
    np.dtype(np.uint32): "TYPE_UINT32",
    np.dtype(np.uint64): "TYPE_UINT64",
    np.dtype(np.int8): "TYPE_INT8",
    np.dtype(np.int16): "TYPE_INT16",
    np.dtype(np.int32): "TYPE_INT32",
    np.dtype(np.int64): "TYPE_INT64",
    np.dtype(np.float16): "TYPE_FP16",
    np.dtype(np.float32): "TYPE_FP32",
    np.dtype(np.float64): "TYPE_FP64",
    np.dtype(np.object_): "TYPE_STRING",
}


class InputError(ValueError):
    """Raised by a function for a request that is wrong: the client gets the text and status 400."""


class AnnotationError(TypeError):
    """An annotation that says nothing about a tensor."""


class Kind:
    """The tensors of one annotation: their dtype, and their shape without a batch dimension (-1: any size)."""

    #: Whether a batch of values is a single array.
    stacks = False

    def __init__(self, dtype: Any, dims: Tuple[int, ...]) -> None:
        self.dtype: np.dtype = np.dtype(dtype)
        self.dims = dims

    @property
    def type(self) -> str:
        """The data type in a config."""
        return TYPES[self.dtype]

    def read(self, array: np.ndarray) -> Any:
        """Return the value of an array. InputError if it has none."""
        raise NotImplementedError

    def write(self, value: Any) -> np.ndarray:
        """Return the array of a value. TypeError or ValueError if it is of another kind."""
        raise NotImplementedError

    def read_batch(self, array: np.ndarray) -> Any:
        """Return the values of a batch."""
        return [self.read(one) for one in array]

    def write_batch(self, values: Any) -> np.ndarray:
        """Return the array of a batch of values."""
        arrays = [self.write(value) for value in values]
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"the results of a batch have the shapes {', '.join(str(a.shape) for a in arrays)}")
        return np.stack(arrays) if arrays else np.empty((0, *self.dims), self.dtype)


class Scalar(Kind):
    """A single value."""

    def __init__(self, dtype: Any, make: Callable[[Any], Any], accepted: Tuple[type, ...]) -> None:
        super().__init__(dtype, (1,))
        self._make, self._accepted = make, accepted
        self.stacks = self.dtype != object

    def read(self, array: np.ndarray) -> Any:
        return self._make(array.reshape(-1)[0])

    def read_batch(self, array: np.ndarray) -> Any:
        return array.reshape(len(array)) if self.stacks else super().read_batch(array)

    def write(self, value: Any) -> np.ndarray:
        return np.array([self.checked(value)], self.dtype)

    def write_batch(self, values: Any) -> np.ndarray:
        if isinstance(values, np.ndarray) and self.stacks:
            return cast(values, self.dtype).reshape(len(values), 1)
        return super().write_batch(values)

    def checked(self, value: Any) -> Any:
        """Return a value of this kind. TypeError for others."""
        if not isinstance(value, self._accepted) or (isinstance(value, bool) and bool not in self._accepted):
            raise TypeError(f"got {type(value).__name__}, want {self._accepted[0].__name__}")
        return value.encode() if isinstance(value, str) else value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"want UTF-8 text, found an invalid byte at {error.start}") from None


SCALARS = {
    str: Scalar(object, _text, (str,)),
    bytes: Scalar(object, bytes, (bytes, bytearray)),
    int: Scalar(np.int64, int, (int, np.integer)),
    float: Scalar(np.float64, float, (float, int, np.floating, np.integer)),
    bool: Scalar(np.bool_, bool, (bool, np.bool_)),
}


class Listed(Kind):
    """A list, perhaps of lists."""

    def __init__(self, element: Scalar, depth: int) -> None:
        super().__init__(element.dtype, (-1,) * depth)
        self._element = element

    def read(self, array: np.ndarray) -> Any:
        if array.ndim > 1:
            return [self.read(row) for row in array]
        return [self._element.read(one) for one in array.reshape(-1, 1)]

    def write(self, value: Any) -> np.ndarray:
        rows, shape = value, []
        for _ in self.dims:
            if not isinstance(rows, (list, tuple, np.ndarray)):
                raise TypeError(f"got {type(rows).__name__}, want list")
            shape.append(len(rows))
            rows = rows[0] if len(rows) else []
        flat: List[Any] = []
        self._flatten(value, shape, flat)
        array = np.empty(len(flat), self.dtype)
        array[:] = flat
        return array.reshape(shape)

    def _flatten(self, value: Any, shape: List[int], flat: List[Any]) -> None:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise TypeError(f"got {type(value).__name__}, want list")
        if len(value) != shape[0]:
            raise ValueError(f"got lists of {shape[0]} and {len(value)} elements, want equal lengths")
        for one in value:
            if len(shape) > 1:
                self._flatten(one, shape[1:], flat)
            else:
                flat.append(self._element.checked(one))


def cast(value: Any, dtype: np.dtype) -> np.ndarray:
    """Return an array of a dtype. TypeError if its values would lose their meaning."""
    array = np.asarray(value)
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"got an array of {array.dtype}, want {dtype}")
    return np.ascontiguousarray(array, dtype).reshape(array.shape)


class Arrayed(Kind):
    """An array of numpy."""

    stacks = True

    def read(self, array: np.ndarray) -> Any:
        return array

    def read_batch(self, array: np.ndarray) -> Any:
        return array

    def write(self, value: Any) -> np.ndarray:
        array = cast(value, self.dtype)
        self._fits(array.shape, self.dims)
        return array

    def write_batch(self, values: Any) -> np.ndarray:
        if not isinstance(values, np.ndarray):
            return super().write_batch(values)
        array = cast(values, self.dtype)
        self._fits(array.shape[1:], self.dims)
        return array

    def _fits(self, shape: Tuple[int, ...], dims: Tuple[int, ...]) -> None:
        if len(shape) != len(dims) or any(want not in (-1, got) for got, want in zip(shape, dims)):
            raise ValueError(f"got the shape {list(shape)}, want {list(dims)}")


class Pictured(Kind):
    """An image of Pillow, encoded in the tensor."""

    def __init__(self) -> None:
        super().__init__(object, (1,))
        self._images = _pillow()

    def read(self, array: np.ndarray) -> Any:
        data = bytes(array.reshape(-1)[0])
        try:
            image = self._images.open(io.BytesIO(data))
            image.load()
        except Exception as error:  # of a decoder
            begin = data[:8].hex(" ") if data else "nothing"
            reason = "" if isinstance(error, self._images.UnidentifiedImageError) else f": {error}"
            raise InputError(f"want an image, found {len(data)} bytes that begin with {begin}{reason}") from None
        return image

    def write(self, value: Any) -> np.ndarray:
        if not isinstance(value, self._images.Image):
            raise TypeError(f"got {type(value).__name__}, want an image of Pillow")
        out = io.BytesIO()
        if value.mode not in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"):
            value = value.convert("RGB")  # PNG has no such mode
        value.save(out, "PNG")
        return np.array([out.getvalue()], object)


def _pillow() -> Any:
    try:
        from PIL import Image as images  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise AnnotationError("images need Pillow: pip install pillow") from None
    return images


class _Shaped:
    """The annotation that nereid.Array[...] is."""

    def __init__(self, dtype: Any, dims: Tuple[int, ...]) -> None:
        self.dtype: np.dtype = np.dtype(dtype)
        self.dims = dims

    def __repr__(self) -> str:
        return f"nereid.Array[{', '.join([repr(self.dtype.name), *map(str, self.dims)])}]"

    def __call__(self) -> None:
        """Do nothing: Python 3.8 accepts only callable objects as annotations in Optional."""

    def __or__(self, other: Any) -> Any:
        return Union[self, other]

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]

    def __hash__(self) -> int:
        return hash((self.dtype, self.dims))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shaped) and (self.dtype, self.dims) == (other.dtype, other.dims)


class Array:
    """An array: Array["float32", 224, 224, 3] has that dtype and shape, -1 is a variable size."""

    def __class_getitem__(cls, item: Any) -> _Shaped:
        dtype, *dims = item if isinstance(item, tuple) else (item, -1)
        try:
            found = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"nereid.Array: the data type is {dtype!r}, want one of numpy, such as 'float32'") from None
        if found not in TYPES or found.hasobject:
            raise TypeError(f"nereid.Array: there are no tensors of {found}; want a number or bool")
        for size in dims:
            if not isinstance(size, int) or isinstance(size, bool) or size < -1 or size == 0:
                raise TypeError(f"nereid.Array: a dimension is {size!r}, want a positive number, or -1 for any size")
        return _Shaped(found, tuple(dims))


if TYPE_CHECKING:
    Image = Any
else:

    class Image:
        """An image of Pillow (PIL.Image.Image)."""


#: Names of scalars, for messages.
KNOWN = (
    "str, bytes, int, float, bool, List[...], nereid.Array[...], NDArray[...], nereid.Image, "
    "Optional of one of these, a dataclass or a pydantic model"
)


def kind_of(annotation: Any) -> Kind:
    """Return the kind of an annotation. AnnotationError for any other annotation."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if isinstance(annotation, _Shaped):
        return Arrayed(annotation.dtype, annotation.dims)
    if annotation is Image or (getattr(annotation, "__module__", "") == "PIL.Image" and annotation.__name__ == "Image"):
        return Pictured()
    for noted in getattr(annotation, "__metadata__", ()):  # of Annotated
        if isinstance(noted, _Shaped):
            return Arrayed(noted.dtype, noted.dims)
    origin, arguments = getattr(annotation, "__origin__", None), list(getattr(annotation, "__args__", ()))
    alias = annotation if origin is None else origin
    if hasattr(alias, "__value__"):  # of a type statement, as numpy.typing.NDArray is in Python 3.12
        return kind_of(alias.__value__[tuple(arguments)] if arguments else alias.__value__)
    if origin is list and len(arguments) == 1:
        inner = arguments[0]
        if inner in SCALARS:
            return Listed(SCALARS[inner], 1)
        if getattr(inner, "__origin__", None) is list:
            nested = kind_of(inner)
            assert isinstance(nested, Listed)
            return Listed(nested._element, len(nested.dims) + 1)
    if origin is np.ndarray and len(arguments) == 2:  # numpy.typing.NDArray
        dtypes = getattr(arguments[1], "__args__", ())
        if dtypes and isinstance(dtypes[0], type) and np.dtype(dtypes[0]) in TYPES and np.dtype(dtypes[0]) != object:
            return Arrayed(dtypes[0], (-1,))
    text = getattr(annotation, "__name__", None) if isinstance(annotation, type) else None
    if annotation is np.ndarray or annotation is list:
        wanted = "List[...], nereid.Array[...] or NDArray[...]"
        raise AnnotationError(f"{text} says nothing about its elements: want {wanted}")
    raise AnnotationError(f"there is no tensor for {text or annotation}: want {KNOWN}")
