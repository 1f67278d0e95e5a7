"""The files that a model has imported, for `--dev`: the server watches them.

These are the source files outside of the model's directory, in which the server looks at sources by itself, and
extension modules anywhere: other files in the model's directory do not count until the model imports them.

A file is reported once, behind the call of the model that has imported it and before that call is answered. So the
server sees the file as it was imported.
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

#: How many files are reported, and the bytes of one report: it fits into a frame without a block of memory.
_MOST = 4096
_REPORT = 16 << 10
#: How many exceptions of a chain are looked at.
_DEEPEST = 64

_CODE = (".py", ".so")
_INSTALLED = {"site-packages", "dist-packages"}


class Imports:
    """Reports the files of one model. All of it happens on the main thread."""

    def __init__(self, channel: Channel, root: str, directory: str) -> None:
        self._channel = channel
        paths = sysconfig.get_paths()
        # Its files are the interpreter's or the stub's.
        others = {paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__), root}
        self._others = tuple(os.path.join(os.path.realpath(path), "") for path in others)
        self._model = os.path.join(os.path.realpath(os.path.dirname(directory)), "")
        self._kinds: dict[str, tuple[str, ...]] = {}  # by directory: the endings of the files in it that are reported
        self._names: set[str] = set()  # of the modules that were looked at
        self._count = 0  # of sys.modules at the last look
        self._told: set[str] = set()

    def attend(self, model: Model) -> None:
        """Report the imported modules, and from now on those that each call of the model's code imports."""
        self.report()
        for name in ("complete", "make", "initialize", "execute"):
            setattr(model, name, self._reporting(getattr(model, name)))

    def report(self, error: BaseException | None = None) -> None:
        """Report new modules; with an exception, the files that it came from, and those that an import has missed."""
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
            except UnicodeEncodeError:  # its name is no text
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
        with suppress(StubError, PoolExhausted):  # where the channel has ended, the main thread finds out by itself
            self._channel.publish(messages.call(self._channel.life, 0, "imported", paths=paths))

    def _modules(self) -> Iterator[str]:
        """The files of modules that are new."""
        if len(sys.modules) == self._count:
            return
        modules = sys.modules.copy()
        self._count = len(modules)
        for name in modules.keys() - self._names:
            self._names.add(name)
            try:  # past a __getattr__ of the module, which may import other modules
                file = object.__getattribute__(modules[name], "__dict__").get("__file__")
            except AttributeError:
                continue
            if isinstance(file, str) and file.endswith(_CODE):
                yield file

    def _blamed(self, error: BaseException) -> Iterator[str]:
        """The files that an exception came from: a module whose import has failed is not in sys.modules."""
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
                # It may lack a symbol, or be of another Python.
                if isinstance(error.path, str) and error.path.endswith(".so"):
                    yield error.path
                yield from self._missed(error)

    def _missed(self, error: ImportError) -> Iterator[str]:
        """Where a module would lie that was not found."""
        name = error.name
        if not isinstance(name, str) or not name:
            return
        if not isinstance(error, ModuleNotFoundError):  # a package has no such name: it may be a module to come
            missing = getattr(error, "name_from", None)  # from Python 3.12 on
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
        """Whether a file is one that the user writes, and the server does not look at by itself."""
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
