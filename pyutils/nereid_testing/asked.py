"""Other models that a model calls: loaded models, or functions of the test that replace them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Union

from c_python_backend_utils.runtime import Refused
from triton_python_backend_utils import InferenceRequest, InferenceResponse, TritonError

from .copies import empty_response, error_response, received_response, tensors_of
from .exchange import Client, Exchange
from .model import Fault, Model

#: A replacement for another model: a function that takes a request and returns a response, a dict
#: of arrays, or, for several responses, a list or generator of these; or a model: its folder, its
#: class, an instance, a Model.
Fake = Union[Callable[[InferenceRequest], Any], type, str, Path, Any]


def ask(fake: Fake, name: str, request: InferenceRequest, client: Client, decoupled: bool) -> Source:
    """Execute a request with a model, or with a function that replaces it."""
    if isinstance(fake, Model):
        if fake.decoupled and not decoupled:
            raise _several(name)
        return _Executed(fake, request)
    if not callable(fake):
        raise TypeError(f"model {name!r} is {type(fake).__name__}, want a function or a model")
    wanted = request.requested_output_names() or None
    try:
        result = fake(request)
        if inspect.iscoroutine(result):
            result = _finish(result)
        if inspect.isgenerator(result):
            if not decoupled:
                raise _several(name)
            return _Generated(result, name, wanted, client)
        items = result if isinstance(result, (list, tuple)) else [result]
        if len(items) != 1 and not decoupled:
            raise _several(name)
        return _Listed([received_response(_response(item), wanted) for item in items])
    except Refused:
        raise
    except Exception as error:
        return _Listed([_raised(name, error)])


def failed(text: str) -> Source:
    """Make the response to a request that reached no model."""
    return _Listed([error_response(TritonError(text))])


def _several(name: str) -> Refused:
    return Refused(
        f"Model {name} is using the decoupled. The current BLS request call doesn't support models using the decoupled "
        "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
        "models.'"
    )


def _failure(instance: str) -> str:
    return f"Failed to process the request(s) for model '{instance}', message: "


def _response(item: Any) -> InferenceResponse:
    if isinstance(item, InferenceResponse):
        return item
    if isinstance(item, Mapping):
        return InferenceResponse(tensors_of(item, {}))
    raise Fault(f"a model's replacement returned {type(item).__name__}, want an InferenceResponse or a dict of arrays")


def _raised(name: str, error: BaseException) -> InferenceResponse:
    """Make the response of a model that raised an exception. A Fault is raised in the test."""
    if isinstance(error, Fault):
        raise error
    return error_response(TritonError(f"{_failure(name + '_0')}{type(error).__name__}: {error}"))


def _finish(coroutine: Any) -> Any:
    """Run a coroutine in a new thread, because this one may have a running loop."""
    outcome: list[Any] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append((context.run(asyncio.run, coroutine), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


class Source:
    """The source of the responses to a BLS request. Implements `iterator.Source`."""

    def take(self) -> tuple[InferenceResponse, bool]:
        raise NotImplementedError

    async def take_soon(self) -> tuple[InferenceResponse, bool]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, contextvars.copy_context().run, self.take)

    def cancel(self) -> None:
        pass

    def stop(self) -> None:
        self.cancel()


class _Listed(Source):
    """Responses that already exist."""

    def __init__(self, responses: list[InferenceResponse]) -> None:
        self._rest = responses or [empty_response()]

    def take(self) -> tuple[InferenceResponse, bool]:
        response = self._rest.pop(0)
        return response, not self._rest


class _Generated(Source):
    """Responses that a generator makes on demand; its end is a response without outputs."""

    def __init__(self, items: Iterator[Any], name: str, wanted: set[str] | None, client: Client) -> None:
        self._items = items
        self._name = name
        self._wanted = wanted
        self._client = client

    def take(self) -> tuple[InferenceResponse, bool]:
        try:
            return received_response(_response(next(self._items)), self._wanted), False
        except StopIteration:
            return empty_response(), True
        except Exception as error:
            return _raised(self._name, error), True

    def cancel(self) -> None:
        self._client.patience = 0


class _Executed(Source):
    """The responses of a model that executes the request."""

    def __init__(self, model: Model, request: InferenceRequest) -> None:
        self._taken = 0
        self._exchange: Exchange | None = None
        self._error: BaseException | None = None
        try:
            (self._exchange,) = model.begin([request], None)
        except Fault as error:
            self._error = error
            text = str(error)
        except Exception as error:
            self._error = error
            text = f"{type(error).__name__}: {error}"
        if self._error is not None:
            self._failure = error_response(TritonError(_failure(model.name) + text))

    def take(self) -> tuple[InferenceResponse, bool]:
        if self._exchange is None:
            return self._failure, True
        arrival = self._exchange.take(self._taken)
        self._taken += 1
        return arrival

    def cancel(self) -> None:
        if self._exchange is not None:
            self._exchange.cancel()
