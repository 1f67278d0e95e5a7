"""A replacement for the server: tests define its answers to the model's calls."""

from __future__ import annotations

import asyncio
import contextvars
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from traceback import print_exception
from types import TracebackType
from typing import Any, Mapping

from c_python_backend_utils import runtime
from c_python_backend_utils.iterator import ResponseIterator, iterator_over
from c_python_backend_utils.runtime import Refused
from triton_python_backend_utils import InferenceRequest, InferenceResponse, TritonModelException

from . import config as configs
from .asked import Fake, ask, failed
from .copies import received_request
from .exchange import Client, Exchange, Exchanges
from .metrics import Histogram, Metrics
from .model import Model, complete, current, imported

_NOT_NOW = "BLS is only supported during the 'execute' function."
_LEVELS = ("INFO", "WARNING", "ERROR", "VERBOSE")


@dataclass(frozen=True)
class LogLine:
    """A log message of a model: `level` is INFO, WARNING, ERROR or VERBOSE."""

    level: str
    message: str
    file: str
    line: int


@dataclass(frozen=True)
class LoadCall:
    """A call of load_model."""

    model: str
    config: str
    files: Mapping[str, bytes] = field(default_factory=dict)


class Server:
    """A replacement for the server, used as a context manager.

    `models` are the models for BLS by name: functions or models. Models in `unloaded` exist but
    must be loaded first. Afterwards, `logs` has all log lines, `asked` the BLS requests, and
    `loads` the calls of load_model.
    """

    def __init__(self, models: Mapping[str, Fake] | None = None, unloaded: tuple[str, ...] = ()) -> None:
        self.models: dict[str, Fake] = dict(models or {})
        self.unloaded = set(unloaded)
        self.logs: list[LogLine] = []
        self.asked: list[InferenceRequest] = []
        self.loads: list[LoadCall] = []
        self._metrics = Metrics()
        self._loaded: list[Model] = []
        self._adopted: list[Model] = []  # instances created by the test, and finalized here
        self._exchanges = Exchanges()
        self._before: runtime.Runtime | None = None
        self._path: list[str] = []

    def __enter__(self) -> Server:
        if self._before is not None:
            raise RuntimeError("the server has been entered already")
        self._before = runtime.current()
        self._path = sys.path[:]
        self._modules = set(sys.modules)
        runtime.install(_Runtime(self))
        try:
            for name, model in self.models.items():
                if isinstance(model, (str, Path, type)):
                    self.models[name] = self.load(model, name=name)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finalize the models in reverse order, and unload modules imported from their folders.

        The first exception of a model is raised here, unless the test has already failed: that
        exception must stay visible.
        """
        assert self._before is not None
        failure: BaseException | None = None
        try:
            while self._loaded:
                try:
                    self._loaded.pop().finalize()
                except (Exception, SystemExit) as raised:
                    if error is None and failure is None:
                        failure = raised
                    else:
                        print_exception(type(raised), raised, raised.__traceback__)
            while self._adopted:
                self._adopted.pop().close()
        finally:
            runtime.install(self._before)
            self._before = None
            added = [path for path in sys.path if path not in self._path]
            sys.path[:] = self._path
            for name in set(sys.modules) - self._modules:
                file = getattr(sys.modules[name], "__file__", None)
                if name.startswith("_nereid_testing_") or (file and str(Path(file).parent) in added):
                    del sys.modules[name]
        if failure is not None:
            raise failure

    def load(
        self,
        model: type | str | Path | Any,
        config: Mapping[str, Any] | str | Path | None = None,
        *,
        name: str = "",
        version: int = 1,
        directory: str | Path | None = None,
        auto_complete: bool = True,
    ) -> Model:
        """Load a model and call its `initialize`.

        `model` is its folder, with config.pbtxt and version folders, its class, or an instance.
        `config` is a dict, the text of a config.pbtxt, or its path; missing fields have the
        server's defaults. `directory` replaces the folder for a model that is not loaded from one.
        """
        if self._before is None:
            raise RuntimeError("models can only be loaded inside of `with Server() as server:`")
        module: Any = None
        if isinstance(model, (str, Path)):
            directory = Path(model).resolve()
            if config is None and (directory / "config.pbtxt").is_file():
                config = directory / "config.pbtxt"
        where = Path("." if directory is None else directory).resolve()
        fields = _config(config)
        name = name or str(fields.get("name", "")) or (where.name if directory is not None else "model")
        filled = configs.fill(fields, name)
        if isinstance(model, (str, Path)):
            sys.path += [str(where / str(version)), str(where)]
            module = imported(where, version, filled["default_model_filename"])
            model = module.TritonPythonModel
        if auto_complete:
            filled = complete(model, filled)
        instance = model() if isinstance(model, type) else model
        loaded = Model(self._exchanges, instance, filled, where, version)
        self._loaded.append(loaded)
        try:
            loaded.initialize()
        except BaseException:
            self._loaded.remove(loaded)
            raise
        return loaded

    def metric(self, family: str, labels: Mapping[str, str] | None = None) -> float | Histogram:
        """Return the value of a model's metric; KeyError if there is no such metric."""
        return self._metrics.read(family, labels or {})

    def responses(self, request: InferenceRequest) -> list[InferenceResponse]:
        """Return the responses to a request of `Model.request`, after the test called `execute`."""
        exchange = self._exchange(request)
        return [] if exchange is None else exchange.responses()

    # Requests.

    def _exchange(self, request: InferenceRequest) -> Exchange | None:
        return self._exchanges.of(request, self._name())

    def _model(self) -> Model | None:
        """The model whose code runs; in threads that a model started, the last loaded model."""
        return current.get(None) or (self._loaded[-1] if self._loaded else None)

    def _name(self) -> str:
        model = self._model()
        return "" if model is None else model.name

    # BLS.

    def _infer(self, request: InferenceRequest, decoupled: bool) -> InferenceResponse | ResponseIterator:
        model = self._model()
        if model is not None and not model.serving:
            raise TritonModelException(_NOT_NOW)
        asked = received_request(request)
        self._exchanges.register(asked, Client())
        self.asked.append(asked)
        name = _text(asked._model_name)
        try:
            source = ask(self._standing_for(name), name, asked, self._exchanges.client(asked), decoupled)
        except Refused as error:
            source = failed(f"Model {name} - Error when running inference: {error}")
        first = source.take()
        return iterator_over(source, first) if decoupled else first[0]

    def _standing_for(self, name: str) -> Fake:
        """Return the model, or its replacement, for a BLS request."""
        fake = self.models.get(name)
        if fake is None:
            raise Refused(f"Request for unknown model: '{name}' is not found")
        if name in self.unloaded:
            raise Refused(f"Failed for execute the inference request. Model '{name}' is not ready.")
        if not isinstance(fake, Model) and hasattr(fake, "execute"):
            fake = self.models[name] = Model(self._exchanges, fake, configs.fill({}, name), Path(), 1)
            fake.serving = True
            self._adopted.append(fake)
        return fake


def _config(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Path):
        return configs.parse(config.read_text("utf-8"))
    if isinstance(config, str):
        return configs.parse(config)
    return dict(config)


_VERSION = re.compile(r"\s*[+]?\d+")


class _Runtime:
    """The runtime of the API's classes while a Server is active."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def log(self, level: int, file: str, line: int, message: str) -> None:
        self._server.logs.append(LogLine(_LEVELS[level], message, file, line))
        runtime.print_line(level, file, line, message)

    def model_directory(self) -> str:
        model = self._server._model()
        if model is None:
            raise RuntimeError("get_model_dir() requires a model loaded with Server.load")
        return str(model.directory)

    def converts_device_tensors(self) -> bool:
        return True

    def free_memory(self) -> int:
        return 0

    def outlet(self, request: InferenceRequest) -> Exchange | None:
        return self._server._exchange(request)

    def infer(self, request: InferenceRequest, decoupled: bool) -> Any:
        return self._server._infer(request, decoupled)

    def infer_soon(self, request: InferenceRequest, decoupled: bool) -> Any:
        loop = asyncio.get_running_loop()
        run = contextvars.copy_context().run
        return loop.run_in_executor(None, run, self._server._infer, request, decoupled)

    def instance(self) -> str:
        return self._server._name()

    def load_model(self, name: Any, config: Any, files: Any) -> None:
        self._server.loads.append(LoadCall(_text(name), _text(config), {_text(k): v for k, v in files.items()}))
        if _text(name) not in self._server.models:
            raise Refused(f"failed to load '{_text(name)}', failed to poll from model repository")
        self._server.unloaded.discard(_text(name))

    def unload_model(self, name: Any, dependents: bool) -> None:
        del dependents
        if _text(name) in self._server.models:
            self._server.unloaded.add(_text(name))

    def is_model_ready(self, name: Any, version: Any) -> bool:
        if _text(version) and not _VERSION.match(_text(version)):
            raise Refused(
                f"failed to get model version from specified version string '{_text(version)}' (details: stol), "
                "version should be an integral value > 0"
            )
        if _text(name) not in self._server.models:
            raise Refused(f"Request for unknown model: '{_text(name)}' is not found")
        return _text(name) not in self._server.unloaded

    def new_family(self, name: Any, description: Any, kind: int) -> int:
        del description
        return self._server._metrics.new_family(_text(name), kind)

    def drop_family(self, family: int) -> None:
        self._server._metrics.drop_family(family)

    def new_metric(self, family: int, labels: list[tuple[str, str]], buckets: list[float]) -> int:
        return self._server._metrics.new_metric(family, labels, buckets)

    def change_metric(self, metric: int, operation: int, value: float) -> None:
        self._server._metrics.change(metric, operation, value)

    def metric_value(self, metric: int) -> float:
        return self._server._metrics.value(metric)


def _text(text: Any) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
