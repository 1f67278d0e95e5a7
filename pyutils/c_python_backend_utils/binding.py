"""Common parts of the bound classes: conversion of arguments, rejection of other operations.

Triton binds these classes with pybind11, whose conversions are part of the contract: text may be
bytes, any sequence is accepted as a list, and anything with __index__ or __int__ as an integer.
Other arguments cause a TypeError that lists the signatures.
"""

from __future__ import annotations

import functools
import operator
import struct
from typing import Any, Callable, ClassVar, Dict, NoReturn, Optional, Sequence, Tuple, Type, TypeVar, Union

MODULE = "c_python_backend_utils"

#: Text from a model: bytes only if they are not valid UTF-8; the getters then fail.
Text = Union[str, bytes]
T = TypeVar("T")
#: Marks an argument that was not given.
NOTHING: Any = object()
_FLOAT = struct.Struct("d")


class Mismatch(Exception):
    """An argument cannot be converted; the called function turns this into its TypeError."""


def show(value: object) -> str:
    """Return the repr of an argument for an error text, even if its __repr__ fails."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} whose repr fails>"


def incompatible(function: str, signatures: Sequence[str], args: Sequence[object], named: dict[str, Any]) -> TypeError:
    """Make the TypeError for a call whose arguments fit none of the signatures."""
    kind = "constructor" if function == "__init__" else "function"
    lines = "".join(f"    {number}. {signature}\n" for number, signature in enumerate(signatures, 1))
    invoked = ", ".join(show(value) for value in args)
    if named:
        invoked += ("; " if invoked else "") + "kwargs: " + ", ".join(f"{k}={show(v)}" for k, v in named.items())
    return TypeError(
        f"{function}(): incompatible {kind} arguments. The following argument types are supported:\n"
        f"{lines}\nInvoked with: {invoked}"
    )


def as_text(value: object) -> Text:
    """Convert a string argument: str, or bytes and bytearray unchanged."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:  # lone surrogates
                raise Mismatch from None
        return value if value.__class__ is str else str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    raise Mismatch


def from_text(text: Text) -> str:
    """Convert text for a model; undecodable bytes raise UnicodeDecodeError."""
    return text if isinstance(text, str) else text.decode()


def as_integer(value: object, low: int, high: int) -> int:
    """Convert an integer in [low, high]: int, bool or an object that converts, but not float."""
    if isinstance(value, float):
        raise Mismatch
    try:
        number = int(operator.index(value))  # type: ignore[arg-type]  # a TypeError is handled below
    except TypeError:
        if not hasattr(type(value), "__int__"):
            raise Mismatch from None
        try:
            number = int(value)  # type: ignore[call-overload]  # it has __int__
        except (TypeError, ValueError, OverflowError):
            raise Mismatch from None
    if not low <= number <= high:
        raise Mismatch
    return number


def as_float(value: object) -> float:
    """Convert a float: float, int, numpy scalars and objects that convert, but not text."""
    if value.__class__ is float:
        return value
    try:
        number: float = _FLOAT.unpack(_FLOAT.pack(value))[0]  # as C does; float() would accept text
    except Exception:
        raise Mismatch from None
    return number


def as_bool(value: object) -> bool:
    """Convert a bool argument: any object that defines its truth value, but not None."""
    if isinstance(value, bool):
        return value
    if value is None or not hasattr(type(value), "__bool__"):
        raise Mismatch
    try:
        return bool(value)
    except Exception:
        raise Mismatch from None


def as_list(value: object) -> list[Any]:
    """Convert a list: any sequence except text. Sets, generators and dicts are rejected."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (str, bytes, dict)) or not hasattr(type(value), "__getitem__"):
        raise Mismatch
    items: Any = value  # indexable, by the test above
    return list(items)


def as_objects(value: object, cls: type[T]) -> list[Any]:
    """Convert a list of objects of a bound class. None stays None; functions interpret it."""
    items = as_list(value)
    for item in items:
        if item is not None and not isinstance(item, cls):
            raise Mismatch
    return items


def uncastable(value: object) -> RuntimeError:
    """Make the RuntimeError for a value that the signature accepts but the conversion rejects."""
    return RuntimeError(
        f"Unable to cast Python instance of type {type(value)} to C++ type '?' "
        "(#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details)"
    )


_type_name: Any = type.__dict__["__name__"]


class BoundType(type):
    """The metaclass of the bound classes. As in Triton, Python's error texts include their module.

    For this, the name stored in the type includes the module, and `__name__` omits it.
    """

    def __init__(cls, name: str, bases: Tuple[type, ...], namespace: Dict[str, Any], **named: Any) -> None:
        super().__init__(name, bases, namespace, **named)
        cls.__name__ = name
        if cls.__module__ == MODULE:
            cls.__annotations__ = {}  # they describe slots; typing.get_type_hints would not find the types in MODULE

    def _name(cls) -> str:
        name: str = _type_name.__get__(cls)
        return name.rpartition(".")[2]

    def _rename(cls, name: str) -> None:
        _type_name.__set__(cls, f"{MODULE}.{name}" if cls.__module__ == MODULE else name)

    __name__: str = property(_name, _rename)  # type: ignore[assignment]  # callers see a str


class Bound(metaclass=BoundType):
    """Base of the bound classes: no new attributes, identity comparison, no pickling or copying."""

    __module__ = MODULE
    __slots__ = ("__weakref__",)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        cls = type(self)
        name = f"{MODULE}.{cls.__name__}" if cls.__module__ == MODULE else cls.__name__
        raise TypeError(f"cannot pickle '{name}' object")


class Unmakeable(Bound):
    """Base of classes that models cannot construct; the runtime creates them without __init__."""

    __module__ = MODULE
    __slots__ = ()

    def __init__(self, *_args: object, **_named: object) -> None:
        raise TypeError(f"{MODULE}.{type(self).__name__}: No constructor defined!")


def checked(**methods: str) -> Callable[[Type[T]], Type[T]]:
    """Make methods without parameters reject arguments with Triton's text.

    The argument maps each method's name to its result type. This costs 0.1 µs per call, so methods
    that every request uses are left out: Python itself rejects such calls there, with its own text.
    """

    def decorate(cls: Type[T]) -> Type[T]:
        for name, returns in methods.items():
            setattr(cls, name, _checked(cls, getattr(cls, name), f"(self: {MODULE}.{cls.__name__}) -> {returns}"))
        return cls

    return decorate


def _checked(cls: type, function: Callable[[Any], Any], signature: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(self: Any = NOTHING, *rest: Any, **named: Any) -> Any:
        if rest or named or (self.__class__ is not cls and not isinstance(self, cls)):
            args = rest if self is NOTHING else (self, *rest)
            raise incompatible(function.__name__, (signature,), args, named)
        return function(self)

    return method


class _Members:
    """The members of an enumeration by name: a new dictionary each time, for class and members."""

    __slots__ = ()

    def __get__(self, instance: Optional[BoundEnum], owner: Type[BoundEnum]) -> Dict[str, BoundEnum]:
        return {name: getattr(owner, name) for name in owner.names}


class BoundEnum(metaclass=BoundType):
    """An enumeration as pybind11 makes it: equal to its integer, unordered, printed as Type.NAME.

    Any integer that fits the C++ type makes a member; members without a name print as ???.
    """

    __module__ = MODULE
    __slots__ = ("_value",)
    names: ClassVar[Tuple[str, ...]] = ()  # in the order of their values, from 0
    limits: ClassVar[Tuple[int, int]] = (0, 2**32 - 1)  # of the C++ type
    __members__: ClassVar[Any] = _Members()

    def __init_subclass__(cls) -> None:
        for value, name in enumerate(cls.names):
            setattr(cls, name, cls(value))

    def __init__(self, *args: Any, **named: Any) -> None:
        try:
            if len(args) + len(named) != 1:
                raise Mismatch
            self._value = as_integer(args[0] if args else named.get("value"), *self.limits)
        except Mismatch:
            signature = f"{MODULE}.{type(self).__qualname__}(value: int)"
            raise incompatible("__init__", (signature,), args, named) from None

    @property
    def name(self) -> str:
        return self.names[self._value] if 0 <= self._value < len(self.names) else "???"

    @property
    def value(self) -> int:
        return self._value

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __getstate__(self) -> int:
        return self._value

    def __setstate__(self, state: int) -> None:
        self._value = state

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        return bool(self._value == other)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{self}: {self._value}>"
