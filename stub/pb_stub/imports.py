"""The files that a model has imported, for `--dev`: the server watches them.

They are source files outside of the model's directory, where the server watches sources itself, and
extension modules anywhere: other files in the model's directory only count once imported.

A file is reported once, after the model's call that imported it and before that call is answered.
So the server sees the file as it was imported.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from types import CoroutineType
from typing import Any, Callable, Iterator

from . import messages
from .channel import Channel
from .errors import StubError
from .model import Model
from .pool import PoolExhausted

#: Maximum number of reported files, and bytes of a report that fits into a frame without a block.
_MOST = 4096
_REPORT = 16 << 10
#: Maximum number of examined exceptions in a chain.
_DEEPEST = 64

_CODE = (".py", ".so")
_INSTALLED = {"site-packages", "dist-packages"}


class Imports:
    """Reports the files of one model. Runs entirely on the main thread."""

    def __init__(self, channel: Channel, root: str, directory: str) -> None:
        self._channel = channel
        paths = sysconfig.get_paths()
        # Files here belong to the interpreter or the stub.
        others = {paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__), root}
        self._others = tuple(os.path.join(os.path.realpath(path), "") for path in others)
        self._model = os.path.join(os.path.realpath(os.path.dirname(directory)), "")
        self._kinds: dict[str, tuple[str, ...]] = {}  # by directory: reported file extensions
        self._names: set[str] = set()  # of examined modules
        self._count = 0  # of sys.modules at the last check
        self._told: set[str] = set()

    def attend(self, model: Model) -> None:
        """Report the imported modules, and those that later calls of the model's code import."""
        self.report()
        for name in ("complete", "make", "initialize", "execute"):
            setattr(model, name, self._reporting(getattr(model, name)))

    def report(self, error: BaseException | None = None) -> None:
        """Report new modules, and the source files and missed imports of an exception."""
        if self._channel.foreign:
            return
        files = [*self._modules(), *(self._blamed(error) if error is not None else ())]
        part: list[str] = []
        size = 0
        for path in map(os.path.abspath, files):
            if path in self._told or len(self._told) >= _MOST or not self._is_ours(path):
                continue
            try:
                length = len(path.encode())
            except UnicodeEncodeError:  # its name is not valid text
                continue
            self._told.add(path)
            if part and size + length > _REPORT:
                self._tell(part)
                part, size = [], 0
            part.append(path)
            size += length
        if part:
            self._tell(part)

    def _tell(self, paths: list[str]) -> None:
        with suppress(StubError, PoolExhausted):  # if the channel is closed, the main thread notices
            self._channel.publish(messages.call(self._channel.life, 0, "imported", paths=paths))

    def _modules(self) -> Iterator[str]:
        """Yield the files of new modules."""
        if len(sys.modules) == self._count:
            return
        modules = sys.modules.copy()
        self._count = len(modules)
        for name in modules.keys() - self._names:
            self._names.add(name)
            try:  # bypasses the module's __getattr__, which may import other modules
                file = object.__getattribute__(modules[name], "__dict__").get("__file__")
            except AttributeError:
                continue
            if isinstance(file, str) and file.endswith(_CODE):
                yield file

    def _blamed(self, error: BaseException) -> Iterator[str]:
        """Yield the files in a traceback: a module whose import failed is not in sys.modules."""
        todo = [error]
        seen: set[int] = set()
        while todo and len(seen) < _DEEPEST:
            error = todo.pop()
            if id(error) in seen:
                continue
            seen.add(id(error))
            todo += [other for other in (error.__context__, error.__cause__) if other is not None]
            traceback = error.__traceback__
            while traceback is not None:
                file = traceback.tb_frame.f_code.co_filename
                if file.endswith(".py"):
                    yield file
                traceback = traceback.tb_next
            if isinstance(error, SyntaxError) and isinstance(error.filename, str) and error.filename.endswith(".py"):
                yield error.filename
            if isinstance(error, ImportError):
                # It may lack a symbol, or be for another Python.
                if isinstance(error.path, str) and error.path.endswith(".so"):
                    yield error.path
                yield from self._missed(error)

    def _missed(self, error: ImportError) -> Iterator[str]:
        """Yield the paths where a missing module would be."""
        name = error.name
        if not isinstance(name, str) or not name:
            return
        if not isinstance(error, ModuleNotFoundError):  # a package lacks the name, which may become a module
            missing = getattr(error, "name_from", None)  # since Python 3.12
            if not isinstance(missing, str):
                return
            name = f"{name}.{missing}"
        parent, _, last = name.rpartition(".")
        folders = getattr(sys.modules.get(parent), "__path__", ()) if parent else sys.path
        for folder in list(folders):
            if isinstance(folder, str) and os.path.isdir(folder or os.curdir):
                yield os.path.join(folder, f"{last}.py")
                for suffix in EXTENSION_SUFFIXES:
                    yield os.path.join(folder, last + suffix)
                yield os.path.join(folder, last)
                yield os.path.join(folder, last, "__init__.py")

    def _is_ours(self, path: str) -> bool:
        """Return whether a file is the user's and not watched by the server anyway."""
        directory = os.path.dirname(path)
        kinds = self._kinds.get(directory)
        if kinds is None:  # an editable install belongs to the user, other installed files do not
            real = os.path.join(os.path.realpath(directory), "")
            if real.startswith(self._others) or not _INSTALLED.isdisjoint(real.split(os.sep)):
                kinds = ()
            elif real.startswith(self._model):
                kinds = (".so",)
            else:
                kinds = ("",)
            self._kinds[directory] = kinds
        return path.endswith(kinds)

    def _reporting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def reporting(*arguments: Any) -> Any:
            try:
                result = call(*arguments)
            except BaseException as error:
                self.report(error)
                raise
            self.report()
            return self._later(result) if isinstance(result, CoroutineType) else result

        return reporting

    async def _later(self, result: Any) -> Any:
        try:
            value = await result
        except BaseException as error:
            self.report(error)
            raise
        self.report()
        return value
