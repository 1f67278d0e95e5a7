"""Stores compiled code of models in a folder of the server, because repositories are never written.

`sys.pycache_prefix` would also apply to all installed packages, which would be recompiled. So only
the repository's folders have their own finder. None of its code is on the stack while a module is
compiled or executed, so tracebacks are unchanged.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import Any, Callable

_FOLDER = "__pycache__"


def keep(root: str, folders: list[str]) -> None:
    """Cache compiled files of folders and all below them under root, for the next start."""
    sys.dont_write_bytecode = True
    if sys.flags.dont_write_bytecode or sys.pycache_prefix is not None:
        sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
        return  # configured by the operator
    prefix = os.path.join(root, "bytecode")
    try:
        os.makedirs(prefix, 0o700, exist_ok=True)
        if os.stat(prefix).st_uid != os.getuid() or not os.access(prefix, os.W_OK):
            return
    except OSError:
        return
    folders = [folder for folder in folders if folder != os.sep]
    roots = tuple({os.path.join(path, "") for folder in folders for path in (folder, os.path.realpath(folder))})
    sys.path_hooks.insert(0, _hook(prefix, roots))
    for path in list(sys.path_importer_cache):
        if os.path.join(path, "").startswith(roots):
            del sys.path_importer_cache[path]
    sys.dont_write_bytecode = False


def _hook(prefix: str, roots: tuple[str, ...]) -> Callable[[str], Any]:
    class Loader(SourceFileLoader):
        """A loader of sources whose compiled code is stored below prefix."""

        def path_stats(self, path: str) -> dict[str, Any]:
            """Return the source's time in nanoseconds; Python stores and compares its low 32 bits.

            With seconds, the second of two quick edits of equal length would go unnoticed.
            """
            found = os.stat(path)
            return {"mtime": found.st_mtime_ns, "size": found.st_size}

        def get_data(self, path: str) -> bytes:
            return super().get_data(_place(prefix, path))

        def _cache_bytecode(self, source_path: str, bytecode_path: str, data: bytes) -> None:
            super()._cache_bytecode(source_path, _place(prefix, bytecode_path), data)  # type: ignore[misc]

    details: Any = (
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (Loader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
    usual = FileFinder.path_hook(*details)
    installed = tuple(os.path.join(path, "") for path in (sys.prefix, sys.base_prefix))

    def hook(path: str) -> Any:
        folder = os.path.join(path, "")
        if not folder.startswith(roots) or folder.startswith(installed):
            raise ImportError("not a folder of the repository", path=path)
        return usual(path)

    return hook


def _place(prefix: str, path: str) -> str:
    """Return the place of compiled code that Python would store at path."""
    folder, name = os.path.split(path)
    folder, last = os.path.split(folder)
    if last != _FOLDER:
        return path
    return os.path.join(prefix, os.path.abspath(folder).lstrip(os.sep), name)
