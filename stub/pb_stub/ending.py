"""The end of a forked stub, which does not touch the state shared with its template.

An interpreter that ends takes all modules down: it writes into every object, and the kernel copies each page that the
template and other stubs share. That is ten times the memory that a small model's stub has of its own, and more
processor time than its start. Of a thousand stubs that end at once it would be gigabytes. So a forked stub takes down
the modules that came after the fork, as the interpreter would, and then ends by the exit() of C, whose handlers and
destructors run.

Where the model has loaded extension modules that are not Python's own, the interpreter ends in its own way: such code
may count on being told.
"""

from __future__ import annotations

import gc
import os
import sys
import types
import weakref
from importlib.machinery import ExtensionFileLoader
from typing import NoReturn

#: The modules that the template had loaded; None where there is no template.
_shared: frozenset[str] | None = None


def share() -> None:
    """Note what stubs will share. The template calls it before its first fork."""
    global _shared  # noqa: PLW0603  # there is one in a process
    _shared = frozenset(sys.modules)


def is_short() -> bool:
    """Whether this process may end without its interpreter's end."""
    if _shared is None:
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
    """Take down the modules that came after the fork, in the interpreter's order.

    First they are forgotten, and go unless something else has them; those that are left lose their names, private ones
    first, the youngest module first.
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
    """End the process by the exit() of C."""
    import ctypes  # the template has it

    # It lets other threads run meanwhile, as destructors may wait for them.
    ctypes.CDLL(None).exit(code)
    os._exit(code)
