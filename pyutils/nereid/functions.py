"""The decorator, and the inputs and outputs of a function."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import re
import sys
import typing
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union, overload

from .kinds import AnnotationError, InputError, Kind, kind_of

#: Stands for a default that does not exist.
MISSING = inspect.Parameter.empty

#: The name of a function's output.
OUTPUT = "output"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

F = TypeVar("F", bound=Callable[..., Any])


class Mistake(Exception):
    """A function that cannot be a model. The text names file, line and remedy."""


@dataclasses.dataclass(frozen=True)
class Field:
    """An input or output."""

    name: str
    kind: Kind
    optional: bool = False
    #: The value of a missing input; MISSING if the record's own default is used.
    default: Any = MISSING


class Record:
    """Several fields in one value: a dataclass or a pydantic model."""

    def __init__(self, make: Any, fields: Tuple[Field, ...]) -> None:
        self._make = make
        self.fields = fields

    def read(self, values: Dict[str, Any]) -> Any:
        """Make the value. InputError if the record rejects its fields."""
        try:
            return self._make(**values)
        except Exception as error:
            if isinstance(error, (InputError, ValueError)):  # pydantic's ValidationError is a ValueError
                raise InputError(str(error)) from error
            raise

    def write(self, value: Any) -> Dict[str, Any]:
        """Return the values of the fields, but not None."""
        if not isinstance(value, self._make):
            raise TypeError(f"the result is of type {type(value).__name__}, want {self._make.__name__}")
        values = {field.name: getattr(value, field.name) for field in self.fields}
        return {name: value for name, value in values.items() if value is not None}


class Signature:
    """The inputs and outputs of a function."""

    def __init__(self, function: Callable[..., Any], owner: Any) -> None:
        """Read the annotations of a function; owner is that function or its class. Mistake if they are incomplete."""
        self._place = _place(function)
        self._name = owner.__name__
        try:
            hints = _hints(function)
        except Exception as error:  # of any annotation
            raise self._mistake(f"its annotations cannot be read: {type(error).__name__}: {error}") from error
        parameters = list(inspect.signature(function).parameters.values())
        if owner is not function:
            parameters = parameters[1:]  # self
        #: The record that the only parameter is, and the name of that parameter.
        self.record: Optional[Tuple[str, Record]] = None
        self.inputs = self._inputs(parameters, hints)
        generates = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        self.decoupled = generates
        self.asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        if "return" not in hints:
            raise self._mistake("its result has no annotation: write -> and a type behind the parameters")
        result = hints["return"]
        if generates:
            origin = getattr(result, "__origin__", None)
            if origin not in _GENERATORS:
                wanted = "Iterator[...] or AsyncIterator[...]"
                raise self._mistake(f"it is a generator, but its result is {_shown(result)}: want {wanted}")
            result = result.__args__[0]
        #: The record that the result is.
        self.result = self._record_of(result)
        if _without_none(result) is not result:
            raise self._mistake(f"its result is {_shown(result)}: a response always has an output")
        self.outputs = self.result.fields if self.result else (self._field(OUTPUT, result, "its result"),)

    def _mistake(self, text: str) -> Mistake:
        return Mistake(f"{self._place}: {self._name}: {text}")

    def _inputs(self, parameters: List[inspect.Parameter], hints: Dict[str, Any]) -> Tuple[Field, ...]:
        fields = []
        for p in parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
                raise self._mistake(f"parameter {p} has no name for clients: list the parameters one by one")
            if p.name in ("id", "parameters"):
                raise self._mistake(f"parameter {p.name} has a name that requests use themselves: rename it")
            if p.name not in hints:
                raise self._mistake(f"parameter {p.name} has no annotation: write {p.name}: and a type")
            record = self._record_of(hints[p.name])
            if record and len(parameters) > 1:
                raise self._mistake(f"parameter {p.name} has several fields, so it must be the only parameter")
            if record:
                self.record = (p.name, record)
                return record.fields
            fields.append(self._field(p.name, hints[p.name], f"parameter {p.name}", p.default))
        if not fields:
            raise self._mistake("it has no parameters: a model needs an input")
        return tuple(fields)

    def _field(self, name: str, annotation: Any, what: str, default: Any = MISSING, optional: bool = False) -> Field:
        inner = _without_none(annotation)
        if inner is not annotation:
            optional, default = True, None if default is MISSING else default
        try:
            return Field(name, kind_of(inner), optional or default is not MISSING, default)
        except AnnotationError as error:
            raise self._mistake(f"{what}: {error}") from None

    def _record_of(self, annotation: Any) -> Optional[Record]:
        if not isinstance(annotation, type):
            return None
        fields = []
        if dataclasses.is_dataclass(annotation):
            hints = _hints(annotation)
            for f in dataclasses.fields(annotation):
                given = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
                if f.init:
                    fields.append(self._field(f.name, hints[f.name], f"{annotation.__name__}.{f.name}", optional=given))
        elif hasattr(annotation, "model_validate"):  # of pydantic
            for name, f in getattr(annotation, "model_fields", {}).items():
                where = f"{annotation.__name__}.{name}"
                fields.append(self._field(name, f.annotation, where, optional=not f.is_required()))
        if not fields:
            return None
        # The record has its own defaults.
        return Record(annotation, tuple(dataclasses.replace(f, default=MISSING) for f in fields))


_GENERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


def _hints(of: Any) -> Dict[str, Any]:
    if sys.version_info < (3, 9):
        return typing.get_type_hints(of)
    return typing.get_type_hints(of, include_extras=True)


def _without_none(annotation: Any) -> Any:
    """Return T for Optional[T], and anything else unchanged."""
    arguments = getattr(annotation, "__args__", None) or ()
    union = getattr(annotation, "__origin__", None) is Union or type(annotation).__name__ == "UnionType"
    others = [one for one in arguments if one is not type(None)]
    return others[0] if union and len(others) == 1 else annotation


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "?"


@dataclasses.dataclass(frozen=True)
class Model:
    """A decorated function or class with its options."""

    name: str
    target: Any
    signature: Signature
    max_batch_size: int
    batch: bool
    max_queue_delay_microseconds: int
    instances: int

    @property
    def description(self) -> str:
        """The docstring."""
        return inspect.cleandoc(self.target.__doc__ or "")


#: All models of this process by name, in the order of their definition.
models: Dict[str, Model] = {}


@overload
def model(target: F) -> F: ...


@overload
def model(
    *,
    name: str = "",
    max_batch_size: int = 0,
    batch: bool = False,
    max_queue_delay_microseconds: int = 0,
    instances: int = 1,
) -> Callable[[F], F]: ...


def model(
    target: Any = None,
    *,
    name: str = "",
    max_batch_size: int = 0,
    batch: bool = False,
    max_queue_delay_microseconds: int = 0,
    instances: int = 1,
) -> Any:
    """Make a function or a class a model, and return it unchanged. docs/functions.md has the options.

    Raises Mistake if the annotations or options cannot be those of a model.
    """

    def decorate(target: Any) -> Any:
        function = target.__call__ if isinstance(target, type) else target
        if not callable(target) or (isinstance(target, type) and "__call__" not in vars(target)):
            raise Mistake(f"{target!r} cannot be a model: want a function, or a class with the method __call__")
        its = name or (_snake(target.__name__) if isinstance(target, type) else target.__name__)
        at = f"{_place(function)}: {its}"
        if not _NAME.fullmatch(its):
            raise Mistake(f"{at}: the name is {its!r}, want letters, digits, '_', '-' and '.'")
        for option, value, least in (
            ("max_batch_size", max_batch_size, 0),
            ("max_queue_delay_microseconds", max_queue_delay_microseconds, 0),
            ("instances", instances, 1),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise Mistake(f"{at}: {option} is {value!r}, want a number of at least {least}")
        if batch and not max_batch_size:
            raise Mistake(f"{at}: batch=True needs a max_batch_size")
        if isinstance(target, type):
            _check_class(target, at)
        signature = Signature(function, target)
        if batch and (signature.decoupled or signature.record):
            raise Mistake(f"{at}: batch=True does not work with generators, nor with records as parameters")
        for field in signature.inputs if batch else ():
            if field.kind.stacks and field.optional and field.default is None:
                raise Mistake(f"{at}: with batch=True, parameter {field.name} is an array, which cannot be None")
        if its in models and not _same_place(models[its].target, target):
            raise Mistake(f"{at}: there is another model with that name: choose one with name=")
        models[its] = Model(its, target, signature, max_batch_size, batch, max_queue_delay_microseconds, instances)
        return target

    return decorate if target is None else decorate(target)


def _check_class(target: type, at: str) -> None:
    try:
        inspect.signature(target).bind()
    except TypeError as error:
        raise Mistake(f"{at}: the class is made without arguments: {error}") from None
    for name in ("setup", "close"):
        if inspect.iscoroutinefunction(getattr(target, name, None)):
            raise Mistake(f"{at}: {name} is a coroutine, and nothing awaits it: make it a method without async")


def _same_place(one: Any, other: Any) -> bool:
    """Return whether two targets are the same code; a cell of a notebook that runs again is."""
    if one.__qualname__ != other.__qualname__ or one.__module__ != other.__module__:
        return False
    if one.__module__ == "__main__":
        return True
    places = [_place(t.__call__ if isinstance(t, type) else t) for t in (one, other)]
    return places[0] == places[1]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
