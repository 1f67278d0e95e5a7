"""TritonError, which models return to clients, and TritonModelException, which they raise."""

from __future__ import annotations

from typing import Any, NoReturn

from .binding import MODULE, Bound, BoundEnum, BoundType, Mismatch, Text, as_text, checked, from_text, incompatible


class TritonModelException(Exception):
    """Raised by this module where Triton rejects a call. Models may raise it too."""

    __module__ = MODULE


class ErrorCode(BoundEnum):
    """The codes of TritonError. Their numbers are sent.

    Models access this class as getattr(TritonError, "__ErrorCode").
    """

    __module__ = MODULE
    __slots__ = ()
    names = (
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    )


ErrorCode.__name__ = "__ErrorCode"
ErrorCode.__qualname__ = "TritonError.__ErrorCode"


class _Code:
    """A code as an attribute of the class and its instances.

    As in Triton, each access creates a member.
    """

    __slots__ = ("_code",)

    def __init__(self, code: int) -> None:
        self._code = code

    def __get__(self, instance: object, owner: object) -> ErrorCode:
        return ErrorCode(self._code)

    def __set__(self, instance: object, value: object) -> NoReturn:
        raise AttributeError("can't set attribute")


class _ReadOnlyCodes(BoundType):
    """Prevents the codes from being replaced on the class; other attributes may be added."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if any(isinstance(vars(base).get(name), _Code) for base in cls.__mro__):
            raise AttributeError("can't set attribute")
        super().__setattr__(name, value)


_SIGNATURE = (
    f"{MODULE}.TritonError(message: str, code: {MODULE}.TritonError.__ErrorCode = <__ErrorCode.INTERNAL: 1>)",
)


@checked(code=f"{MODULE}.TritonError.__ErrorCode", message="str")
class TritonError(Bound, metaclass=_ReadOnlyCodes):
    """An error for one request: the text for the client, and a code."""

    __module__ = MODULE
    __slots__ = ("_code", "_given", "_message")

    _code: int  # the code that is sent
    _given: int  # the code that code() returns
    _message: Text

    UNKNOWN = _Code(0)
    INTERNAL = _Code(1)
    NOT_FOUND = _Code(2)
    INVALID_ARG = _Code(3)
    UNAVAILABLE = _Code(4)
    UNSUPPORTED = _Code(5)
    ALREADY_EXISTS = _Code(6)
    CANCELLED = _Code(7)

    def __init__(self, *args: object, **named: object) -> None:
        try:
            message, code = _arguments(*args, **named)
            self._message = as_text(message)
            if not isinstance(code, ErrorCode):
                raise Mismatch
        except (Mismatch, TypeError):
            raise incompatible("__init__", _SIGNATURE, args, named) from None
        self._given = code.value
        self._code = code.value if code.value < len(ErrorCode.names) else 0

    def code(self) -> ErrorCode:
        return ErrorCode(self._given)

    def message(self) -> str:
        return from_text(self._message)


setattr(TritonError, "__ErrorCode", ErrorCode)  # the class body would mangle the name

_DEFAULT = ErrorCode(1)


def _arguments(message: object, code: object = _DEFAULT) -> tuple[object, object]:
    return message, code
