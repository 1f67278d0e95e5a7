"""A TritonPythonModel that calls a function."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from .functions import MISSING, Field, Mistake, Model, models
from .kinds import InputError

_OWN = os.path.dirname(__file__)


class Function:
    """The part that all models of functions share: the object to call, its inputs and its outputs."""

    model: Model

    def initialize(self, args: Dict[str, str]) -> None:
        """Make the object of a class."""
        self._signature = self.model.signature
        # The file may have changed since the config was written from it.
        if not self._agrees(json.loads(args["model_config"])):
            raise Mistake(f"the annotations of {self.model.name} and its config.pbtxt differ: build the file again")
        self.call: Callable[..., Any] = self.model.target
        self._object: Any = None
        if isinstance(self.model.target, type):
            self._object = self.call = self.model.target()
            setup = getattr(self._object, "setup", None)
            if setup is not None:
                setup()

    def _agrees(self, config: Dict[str, Any]) -> bool:
        def tensors(key: str) -> List[Any]:
            return [(t["name"], t["data_type"], [int(d) for d in t["dims"]]) for t in config.get(key, [])]

        def declared(fields: Tuple[Field, ...]) -> List[Any]:
            return [(f.name, f.kind.type, list(f.kind.dims)) for f in fields]

        return (
            tensors("input") == declared(self._signature.inputs)
            and tensors("output") == declared(self._signature.outputs)
            and bool(config.get("max_batch_size")) == bool(self.model.max_batch_size)
            and bool(config.get("model_transaction_policy", {}).get("decoupled")) == self._signature.decoupled
        )

    def finalize(self) -> None:
        """End the object of a class."""
        close = getattr(self._object, "close", None)
        if close is not None:
            close()

    def rows(self, request: Any) -> Tuple[Dict[str, np.ndarray], int]:
        """Return the arrays of the inputs that the request has, and its batch size; 1 without a batch dimension."""
        arrays = {}
        for field in self._signature.inputs:
            tensor = pb_utils.get_input_tensor_by_name(request, field.name)
            if tensor is not None:
                arrays[field.name] = tensor.as_numpy()
        if not self.model.max_batch_size or not arrays:
            return arrays, 1
        return arrays, len(next(iter(arrays.values())))

    def arguments(self, arrays: Dict[str, np.ndarray], row: Optional[int]) -> Dict[str, Any]:
        """Return the arguments of the function. InputError names the field."""
        values = {}
        for field in self._signature.inputs:
            array = arrays.get(field.name)
            if array is not None:
                values[field.name] = _read(field, field.kind.read, array if row is None else array[row])
            elif field.default is not MISSING:
                values[field.name] = field.default
            elif not field.optional:  # the server rejects it first
                raise InputError(f'input "{field.name}" is missing')
        if self._signature.record:
            name, record = self._signature.record
            return {name: record.read(values)}
        return values

    def respond(self, results: Any) -> Any:
        """Return the response with the results for all rows of a request."""
        record = self._signature.result
        values = [record.write(result) for result in results] if record else []
        tensors = []
        for field in self._signature.outputs:
            column = [value[field.name] for value in values if field.name in value] if record else results
            if len(column) != len(results):
                if column:
                    raise ValueError(f'output "{field.name}" is None for some elements of the batch')
                continue
            if self.model.max_batch_size:
                array = _write(field.kind.write_batch, column, field)
            else:
                array = _write(field.kind.write, column[0], field)
            tensors.append(pb_utils.Tensor(field.name, array))
        return pb_utils.InferenceResponse(tensors)

    def indices(self, count: int) -> List[Optional[int]]:
        """Return the rows of a request."""
        return list(range(count)) if self.model.max_batch_size else [None]


def _read(field: Field, read: Callable[[np.ndarray], Any], array: np.ndarray) -> Any:
    try:
        return read(array)
    except InputError as error:
        raise InputError(f'input "{field.name}": {error}') from None


def _write(write: Callable[[Any], np.ndarray], value: Any, field: Field) -> np.ndarray:
    try:
        return write(value)
    except (TypeError, ValueError) as error:  # a UnicodeEncodeError cannot be made of a text
        made = TypeError if isinstance(error, TypeError) else ValueError
        raise made(f'output "{field.name}": {error}') from None


def _failed(error: Exception) -> Any:
    """Return the response to a request that failed."""
    if isinstance(error, InputError):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
    frames = traceback.extract_tb(error.__traceback__)
    while frames and os.path.dirname(frames[0].filename) == _OWN:
        del frames[0]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(error), error)
    pb_utils.Logger.log_error("Traceback (most recent call last):\n" + "".join(lines).rstrip())
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))


class Plain(Function):
    """Calls a function for each element."""

    def execute(self, requests: List[Any]) -> List[Any]:
        """Answer the requests."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            arrays, count = self.rows(request)
            return self.respond([self.call(**self.arguments(arrays, row)) for row in self.indices(count)])
        except Exception as error:
            return _failed(error)


class Async(Function):
    """Calls a coroutine function for all elements at once."""

    async def execute(self, requests: List[Any]) -> List[Any]:
        """Answer the requests."""
        return list(await asyncio.gather(*(self._answer(request) for request in requests)))

    async def _answer(self, request: Any) -> Any:
        try:
            arrays, count = self.rows(request)
            calls = [self.call(**self.arguments(arrays, row)) for row in self.indices(count)]
            return self.respond(await asyncio.gather(*calls))
        except Exception as error:
            return _failed(error)


class Batched(Function):
    """Calls a function for a whole batch."""

    def execute(self, requests: List[Any]) -> List[Any]:
        """Answer the requests."""
        taken, responses = self._taken(requests)
        try:
            results = self.call(**self._together(taken)) if taken else None
            return self._divided(responses, taken, results)
        except Exception as error:
            return [response or _failed(error) for response in responses]

    def _taken(self, requests: List[Any]) -> Tuple[List[Tuple[Dict[str, Any], int]], List[Any]]:
        """Return the columns of the requests that can be read, and for each request a response, or None if it can."""
        taken: List[Tuple[Dict[str, Any], int]] = []
        responses: List[Any] = []
        for request in requests:
            arrays, count = self.rows(request)
            try:  # an error belongs to its request
                taken.append(({f.name: _column(f, arrays.get(f.name), count) for f in self._signature.inputs}, count))
                responses.append(None)
            except InputError as error:
                responses.append(_failed(error))
        return taken, responses

    def _together(self, taken: List[Tuple[Dict[str, Any], int]]) -> Dict[str, Any]:
        arguments: Dict[str, Any] = {}
        for field in self._signature.inputs:
            parts = [columns[field.name] for columns, _ in taken]
            if field.kind.stacks:
                arguments[field.name] = field.kind.read_batch(parts[0] if len(parts) == 1 else np.concatenate(parts))
            else:
                arguments[field.name] = [value for part in parts for value in part]
        return arguments

    def _divided(self, responses: List[Any], taken: List[Tuple[Dict[str, Any], int]], results: Any) -> List[Any]:
        counts = [count for _, count in taken]
        if taken:
            _check_count(results, sum(counts))
        at = 0
        answered = iter(counts)
        for i, response in enumerate(responses):
            if response is None:
                end = at + next(answered)
                try:  # an error belongs to its request
                    responses[i] = self.respond(results[at:end])
                except Exception as error:
                    responses[i] = _failed(error)
                at = end
        return responses


def _column(field: Field, array: Optional[np.ndarray], count: int) -> Any:
    """Return the values of a field for all rows of a request: an array if the kind stacks, otherwise a list."""
    if array is None and field.default is MISSING:  # the server rejects it first
        raise InputError(f'input "{field.name}" is missing')
    if array is None:
        return np.stack([field.kind.write(field.default)] * count) if field.kind.stacks else [field.default] * count
    return array if field.kind.stacks else _read(field, field.kind.read_batch, array)


def _check_count(results: Any, count: int) -> None:
    wanted = f"{count}, one for each element of the batch"
    if not isinstance(results, (list, tuple, np.ndarray)):
        raise TypeError(f"the function returned {type(results).__name__}, want a list or array of {wanted}")
    if len(results) != count:
        raise ValueError(f"the function returned {len(results)} results, want {wanted}")


class AsyncBatched(Batched):
    """Calls a coroutine function for a whole batch."""

    async def execute(self, requests: List[Any]) -> List[Any]:  # type: ignore[override]
        """Answer the requests."""
        taken, responses = self._taken(requests)
        try:
            results = await self.call(**self._together(taken)) if taken else None
            return self._divided(responses, taken, results)
        except Exception as error:
            return [response or _failed(error) for response in responses]


class Stream(Function):
    """Sends each value of a generator."""

    def execute(self, requests: List[Any]) -> None:
        """Answer the requests, one after the other."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                arrays, count = self.rows(request)
                for row in self.indices(count):
                    self._send(sender, self.call(**self.arguments(arrays, row)))
            except Exception as error:
                sender.send(_failed(error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _send(self, sender: Any, values: Any) -> None:
        try:
            for value in values:
                if sender.is_cancelled():
                    return
                sender.send(self.respond([value]))
        finally:
            getattr(values, "close", lambda: None)()


class AsyncStream(Function):
    """Sends each value of an asynchronous generator."""

    async def execute(self, requests: List[Any]) -> None:
        """Answer the requests at the same time."""
        await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            arrays, count = self.rows(request)
            for row in self.indices(count):
                await self._send(sender, self.call(**self.arguments(arrays, row)))
        except Exception as error:
            sender.send(_failed(error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def _send(self, sender: Any, values: Any) -> None:
        try:
            async for value in values:
                if sender.is_cancelled():
                    return
                sender.send(self.respond([value]))
        finally:
            await values.aclose()


def model_class(found: Model) -> type:
    """Return the TritonPythonModel of a model."""
    signature = found.signature
    if signature.decoupled:
        base: type = AsyncStream if signature.asynchronous else Stream
    elif found.batch:
        base = AsyncBatched if signature.asynchronous else Batched
    else:
        base = Async if signature.asynchronous else Plain
    return type("TritonPythonModel", (base,), {"model": found})


def serve(module: str, name: str) -> type:
    """Import a module and return the TritonPythonModel of the model that it defines."""
    importlib.import_module(module)
    if name not in models:
        raise ImportError(f"{module}.py defines no model {name}; it defines {', '.join(models) or 'none'}")
    return model_class(models[name])
