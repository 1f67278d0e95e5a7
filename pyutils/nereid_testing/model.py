"""One loaded model, and requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib.util
import json
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from triton_python_backend_utils import (
    InferenceRequest,
    InferenceResponse,
    ModelConfig,
    Tensor,
    TritonModelException,
    triton_string_to_numpy,
)

from . import config as configs
from .copies import received, tensors_of
from .declared import Declared
from .exchange import Client, Exchange, Exchanges

_RESCHEDULE = 2
#: Time for the tasks of a model to end after their cancellation, in seconds.
_PATIENCE = 10

#: The model whose code runs, if known: it is not set in threads that the model started.
current: contextvars.ContextVar[Model] = contextvars.ContextVar("nereid_testing.model")


class Fault(AssertionError):
    """An action that a server would reject; the text is what clients would receive."""


class Model:
    """An initialized TritonPythonModel. `Server.load` makes it.

    `instance` is the user's object, `config` the model's config as a dict, `args` the argument of
    `initialize`.
    """

    def __init__(
        self, exchanges: Exchanges, instance: Any, config: dict[str, Any], directory: Path, version: int
    ) -> None:
        self.instance = instance
        self.config = config
        self.args = arguments(config, directory, version)
        self.directory = directory / str(version)
        self.name = self.args["model_instance_name"]
        self.decoupled = configs.decoupled(config)
        self._declared = Declared(config)
        #: Whether BLS requests are allowed.
        self.serving = False
        self._exchanges = exchanges
        self._loop: asyncio.AbstractEventLoop | None = None

    # For tests.

    def request(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        *,
        outputs: Sequence[str] = (),
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        timeout: int = 0,
        parameters: Mapping[str, bool | int | float | str] | None = None,
        trace: str | None = None,
        cancel_after: int | None = None,
    ) -> InferenceRequest:
        """Make a request as if it came from a client.

        `inputs` are Tensors, or arrays by name (lists are converted to the data type in the
        config). Without `outputs`, all outputs are requested. `trace` is the JSON text that
        `trace().get_context()` returns. With `cancel_after`, the client goes away after that number
        of responses; 0 means before the first. Raises Fault if a name is not among the inputs or
        outputs of the config.
        """
        names = list(inputs) if hasattr(inputs, "items") else [t.name() for t in inputs if isinstance(t, Tensor)]
        strange = self._declared.strange_output(outputs) or self._declared.strange_input(names)
        if strange:
            raise Fault(strange)
        dtypes = {
            entry["name"]: triton_string_to_numpy(entry["data_type"])
            for entry in self.config["input"]
            if entry["data_type"] not in ("TYPE_INVALID", "TYPE_BF16")
        }
        request = InferenceRequest(
            request_id,
            correlation_id,
            tensors_of(inputs, dtypes),
            list(outputs),
            self.config["name"],
            flags=flags,
            timeout=timeout,
        )
        request._trace = trace
        if parameters:
            request._parameters = json.dumps(dict(parameters), separators=(",", ":"))
        self._exchanges.register(request, Client(cancel_after))
        return request

    def infer(self, inputs: Mapping[str, Any] | Sequence[Any], **options: Any) -> InferenceResponse:
        """Request one response, with the options of `request`.

        Fault unless the model sends exactly one.
        """
        responses = self.stream(inputs, **options)
        if len(responses) != 1:
            raise Fault(f"model {self.config['name']!r} has sent {len(responses)} responses, want 1")
        return responses[0]

    def stream(self, inputs: Mapping[str, Any] | Sequence[Any], **options: Any) -> list[InferenceResponse]:
        """Request all responses of a decoupled model, with the options of `request`."""
        return self.execute([self.request(inputs, **options)])[0]

    def execute(self, requests: Sequence[InferenceRequest], seconds: float = 10.0) -> list[list[InferenceResponse]]:
        """Execute a batch and return the responses to each request.

        Waits until all requests are complete, including those answered by threads and coroutines.
        Exceptions of `execute` are raised here. Raises Fault for an action that a server would
        reject, and TimeoutError after `seconds`.
        """
        deadline = time.monotonic() + seconds
        exchanges = self.begin(requests, deadline)
        for request, exchange in zip(requests, exchanges):
            if not exchange.wait(deadline):
                raise TimeoutError(
                    f"request {request.request_id()!r}: no final flag within {seconds} s, "
                    f"after {len(exchange.responses())} responses"
                )
        for exchange in exchanges:
            if exchange.fault:
                raise Fault(exchange.fault)
        return [exchange.responses() for exchange in exchanges]

    def cancel(self, request: InferenceRequest) -> None:
        """Make the client of a request go away.

        May be called by another thread during `execute`.
        """
        self._exchanges.client(request).patience = 0

    def is_ready(self) -> bool:
        """Call the model's `is_ready`; True if it has none."""
        check = getattr(self.instance, "is_ready", None)
        if check is None:
            return True
        with self.running():
            ready = check()
            if asyncio.iscoroutine(ready):
                ready = self._run(ready, None)
        if not isinstance(ready, bool):
            raise Fault("is_ready() must return a boolean value")
        return ready

    def finalize(self) -> None:
        """Call `finalize`, once. Exceptions propagate, although a server only logs them."""
        if not self.serving:
            return
        self.serving = False
        self.close()
        finalize = getattr(self.instance, "finalize", None)
        if finalize is not None:
            with self.running():
                finalize()

    # For the server.

    def close(self) -> None:
        """Stop the event loop and the tasks that run on it."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(_PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
            self._loop.close()
            self._loop = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make this the model whose code runs."""
        token = current.set(self)
        try:
            yield
        finally:
            current.reset(token)

    def initialize(self) -> None:
        initialize = getattr(self.instance, "initialize", None)
        if initialize is not None:
            with self.running():
                initialize(dict(self.args))
        self.serving = True

    def begin(self, requests: Sequence[InferenceRequest], deadline: float | None) -> list[Exchange]:
        """Execute a batch until `execute` has returned and an awaited coroutine has ended.

        Requests that the model reschedules are executed again.
        """
        exchanges = [
            Exchange(
                self.name,
                self.decoupled,
                self._wanted(request) or None,
                self._exchanges.client(request),
                self._declared,
            )
            for request in requests
        ]
        batch = list(zip(requests, exchanges))
        first = True
        while batch:
            again = self._round([self._given(request, exchange, first) for request, exchange in batch], batch, deadline)
            batch = [item for item, rescheduled in zip(batch, again) if rescheduled]
            first = False
        return exchanges

    def _wanted(self, request: InferenceRequest) -> list[str]:
        return list(request.requested_output_names()) or [entry["name"] for entry in self.config["output"]]

    def _given(self, request: InferenceRequest, exchange: Exchange, first: bool) -> InferenceRequest:
        """Copy a request for the model, so that the test's own request stays unanswered."""
        clone = InferenceRequest(
            request._id,
            request._correlation,
            [received(tensor) for tensor in request._inputs],
            self._wanted(request),
            self.config["name"],
            flags=request._flags if first else 0,
            timeout=request._timeout,
            trace=request.trace(),
        )
        clone._parameters = request._parameters
        self._exchanges.open(clone, exchange)
        return clone

    def _round(
        self,
        requests: list[InferenceRequest],
        batch: list[tuple[InferenceRequest, Exchange]],
        deadline: float | None,
    ) -> list[bool]:
        """Execute requests once, and return for each whether it is to be executed again.

        After this, unanswered requests are only referenced by the model; without a reference they
        end.
        """
        mine = requests[:]
        with self.running():
            execute = getattr(self.instance, "execute", None)
            if execute is None:
                raise Fault(f"Python model {self.directory / 'model.py'} does not implement `execute` method.")
            result = execute(requests)
            if asyncio.iscoroutine(result):
                result = self._run(result, deadline)
                if self.decoupled:
                    result = None  # a server ignores it
        self._check(result, mine)
        again = []
        for request, (_, exchange), response in zip(mine, batch, result or [None] * len(mine)):
            sender = request.get_response_sender()  # otherwise the end of the request would not be noticed
            rescheduled = response is None and bool(sender._release & _RESCHEDULE) and not sender._closed
            again.append(rescheduled)
            if rescheduled:
                sender._closed = True
            if response is not None:
                try:
                    sender._answer()
                except TritonModelException as error:
                    raise Fault(str(error)) from None
                exchange.send(response, True)
        return again

    def _check(self, result: Any, requests: list[InferenceRequest]) -> None:
        """Reject a value that is not a valid result for a batch."""
        if result is None:
            return
        if self.decoupled:
            raise Fault(
                f"Python model '{self.name}' is using the decoupled mode and the execute function must return None."
            )
        if not isinstance(result, list):
            raise Fault(f"Expected a list in the execute return, found type '{type(result)}'.")
        if len(result) != len(requests):
            raise Fault(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(result)}\n"
            )
        for request, response in zip(requests, result):
            if response is None:
                continue
            if request.get_response_sender()._release & _RESCHEDULE:
                raise Fault(
                    "Expected a None object in the execute function return list for reschduled request, "
                    f"found type '{type(response)}'."
                )
            if not isinstance(response, InferenceResponse):
                raise Fault(
                    "Expected an 'InferenceResponse' object in the execute function return list, "
                    f"found type '{type(response)}'."
                )

    def _run(self, coroutine: Any, deadline: float | None) -> Any:
        """Run a coroutine of the model on the model's event loop in another thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="model's event loop", daemon=True)
            self._thread.start()
        context = contextvars.copy_context()
        done = context.run(asyncio.run_coroutine_threadsafe, coroutine, self._loop)
        return done.result(None if deadline is None else max(0.0, deadline - time.monotonic()))


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def arguments(config: Mapping[str, Any], directory: Path, version: int) -> dict[str, str]:
    """Make the argument of `initialize`."""
    groups = config["instance_group"] or [{}]
    kind = str(groups[0].get("kind", "KIND_CPU")).replace("KIND_", "")
    return {
        "model_config": json.dumps(config, separators=(",", ":")),
        "model_instance_kind": "CPU" if kind == "AUTO" else kind,
        "model_instance_name": configs.instance_name(config),
        "model_instance_device_id": str((groups[0].get("gpus") or [0])[0]),
        "model_repository": str(directory),
        "model_version": str(version),
        "model_name": str(config["name"]),
    }


def complete(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Complete a config with the model's class, if it implements this."""
    auto_complete = getattr(model, "auto_complete_config", None)
    if auto_complete is None:
        return config
    completed = auto_complete(ModelConfig(json.dumps(config)))
    if not isinstance(completed, ModelConfig):
        raise Fault(
            f"auto_complete_config function in model '{config['name']}' must return a valid pb.ModelConfig object."
        )
    return configs.fill(completed.as_dict(), config["name"])


def imported(directory: Path, version: int, file: str) -> Any:
    """Import a version's file like a server: modules beside it can be imported, also relatively."""
    path = directory / str(version) / file
    if not path.is_file():
        raise FileNotFoundError(f"Python model file not found in '{path}'")
    package = f"_nereid_testing_{directory.name}_{version}"
    parent = types.ModuleType(package)
    parent.__path__ = [str(path.parent)]
    sys.modules[package] = parent
    spec = importlib.util.spec_from_file_location(f"{package}.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
