"""The end of a forked stub, which does not touch memory shared with its template.

An interpreter that ends removes all modules. It writes to every object, so the kernel copies each
page that the template and other stubs share. This takes ten times the memory of a small model's
stub, and more processor time than its start; for a thousand stubs that end at once, it would be
gigabytes. So a forked stub removes the modules loaded after the fork, as the interpreter would, and
then calls C's exit(), which runs handlers and destructors.

If the model has loaded extension modules other than Python's own, the interpreter ends normally,
because such code may rely on it. So does a free-threaded one, whose threads may still run.
"""

from __future__ import annotations

import gc
import os
import sys
import types
import weakref
from importlib.machinery import ExtensionFileLoader
from typing import NoReturn

#: The modules that the template had loaded; None without a template.
_shared: frozenset[str] | None = None


def share() -> None:
    """Record the modules that stubs will share. The template calls it before its first fork."""
    global _shared  # noqa: PLW0603  # one in a process
    _shared = frozenset(sys.modules)


def is_short() -> bool:
    """Return whether this process may skip the interpreter's shutdown."""
    if _shared is None or "t" in getattr(sys, "abiflags", ""):
        return False
    version = "python{}.{}".format(*sys.version_info)
    library = os.path.join(sys.base_exec_prefix, getattr(sys, "platlibdir", "lib"), version)
    own = os.path.realpath(os.path.join(library, "lib-dynload"))
    for name in [name for name in sys.modules if name not in _shared]:
        loader = getattr(getattr(sys.modules[name], "__spec__", None), "loader", None)
        if isinstance(loader, ExtensionFileLoader) and os.path.dirname(os.path.realpath(loader.path)) != own:
            return False
    return True


def take_down() -> None:
    """Remove the modules loaded after the fork, in the interpreter's order.

    First they are removed from sys.modules, which deletes those without other references. The
    remaining ones lose their names, private names first, the newest module first.
    """
    assert _shared is not None
    names = [name for name in sys.modules if name not in _shared or name == "__main__"]
    left = []
    for name in names:
        module = sys.modules.pop(name)
        if isinstance(module, types.ModuleType):
            left.append(weakref.ref(module))
        del module
    gc.collect()
    for reference in reversed(left):
        kept = reference()
        if kept is not None:
            _clear(vars(kept))
            del kept
    gc.collect()


def _clear(names: dict[str, object]) -> None:
    for private in (True, False):
        for name in list(names):
            if isinstance(name, str) and name != "__builtins__" and (not private or _is_private(name)):
                names[name] = None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def leave(code: int) -> NoReturn:
    """End the process with C's exit()."""
    import ctypes  # already loaded by the template

    # It releases the GIL, because destructors may wait for other threads.
    ctypes.CDLL(None).exit(code)
    os._exit(code)
