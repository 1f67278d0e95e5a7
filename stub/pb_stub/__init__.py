"""The stub: the process in which one instance of a model runs.

    __main__ ─▶ main ─▶ process    process group, lifeline, the model's view of its interpreter, exit
    template ─▶      ├▶ activation  programs started by the model do not search an environment's libraries
                     ├▶ channel    rings and bells (spin: wait or sleep)      layout, messages, _msgpack: encoding
                     └▶ loop       AUTO_COMPLETE INITIALIZE … EXECUTE … FINALIZE
                        ├ model    import, complete, initialize, execute, finalize (coroutines: async execute)
                        ├ execution  one batch after another, always answered
                        ├ batch    requests from EXECUTE, responses into EXECUTED (names: tensors' names)
                        ├ senders  responses one by one (forgotten: senders in reference cycles)
                        ├ outgoing tensors of a frame, placed and described
                        ├ inferences BLS requests of the model (futures: for event loops)
                        ├ relay    the same for processes that the model forks
                        ├ loans    inputs: blocks that the supervisor lends
                        ├ regions  inputs in regions of clients, mapped
                        ├ places   outputs in regions of clients, written there
                        ├ pool     outputs: this stub's own blocks
                        ├ ondevice the same on devices: devicepool (outputs), deviceloans (inputs), deviceplaces
                        ├ logs     messages of Logger
                        ├ handlers signal handlers, and where their exceptions are raised
                        ├ service  a thread that reads frames while no other does
                        ├ readiness  is_ready, beside execute
                        ├ debugger breakpoints, with --dev (terminal: its owner; imports: files that the model imported)
                        ├ bytecode where compiled code of models is stored
                        ├ mappings  the mapped parts of shared files
                        └ failure  the text of an exception

In a process that several instances share, each runs `serve` in a thread of its own (joins).

Importing this package starts and opens nothing: a template process imports it once and forks stubs.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import activation, messages, process
from .channel import Channel
from .errors import Closed, Detached, ForeignProcess, Gone, ProtocolError, StubError
from .handlers import Handlers
from .process import Descriptors

#: The directory of this package and of the modules that models import.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main(instance: str, fds: Descriptors, joins: int = -1) -> NoReturn:
    """Run the stub of an instance until the supervisor stops it or exits.

    Further instances join through the socket joins, unless it is -1.
    """
    if joins < 0:
        process.leave(serve(instance, fds))
    from .joins import Joins

    others = Joins(joins, lambda name, files: serve(name, files, joined=True, shared=True))
    code = serve(instance, fds, shared=True)
    others.wait()
    process.leave(code)


def serve(instance: str, fds: Descriptors, joined: bool = False, shared: bool = False) -> int:
    """Run an instance in this thread; returns the exit code of its process.

    Errors of the stub end a process that others share.
    """
    code = process.EXIT_LOST
    try:
        return _serve(instance, fds, joined, shared)
    except Detached:
        return 0
    except ForeignProcess as error:
        process.disown(instance, error)
    except (Gone, Closed) as error:
        process.lose(instance, error)
    except StubError as error:
        process.complain(instance, str(error))
        code = process.code_of(error)
    except MemoryError:
        sys.excepthook(*sys.exc_info())
        code = process.EXIT_NO_MEMORY
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if shared:
        process.flush()
        os._exit(code)
    return code


def _serve(instance: str, fds: Descriptors, joined: bool, shared: bool) -> int:
    fds = process.join(fds) if joined else process.settle(fds)
    handlers = Handlers()
    if not joined:
        handlers.install()
        sys.breakpointhook = process.refuse_breakpoint
    channel = Channel(fds.down, fds.up, fds.bell_in, fds.bell_out, handlers)

    def confused(text: str) -> NoReturn:
        process.lose(instance, ProtocolError(text))

    channel.distrust = confused
    try:
        import numpy
    except Exception as error:
        return _refuse(channel, error)
    _hello(channel, numpy.__version__)
    from .loop import Loop

    loop = Loop(instance, channel, handlers, fds, ROOT)
    code = loop.run()
    if shared and loop.detach():
        process.dismiss(fds)
    return code


def _hello(channel: Channel, numpy: str) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    channel.publish(messages.hello(channel.life, os.getpid(), python, numpy, sys.executable or "", sys.prefix))


def _refuse(channel: Channel, error: Exception) -> int:
    """Report that numpy is missing; no model can run without it."""
    from queue import SimpleQueue

    from .channel import Mailbox
    from .failure import describe

    _hello(channel, "")
    box: Mailbox[bytes] = SimpleQueue()
    channel.route = lambda _: box
    if messages.kind_of(channel.receive(box)) == messages.AUTO_COMPLETE:
        channel.publish(messages.completed(channel.life, describe(error), ""))
    else:
        channel.publish(messages.initialized(channel.life, describe(error), False))
    return process.EXIT_NOT_STARTED


def command(arguments: list[str]) -> NoReturn:
    """Run `<program> <instance> --fds=down,up,requests,bell_in,bell_out,lifeline[,regions] [--join=N]`."""
    try:
        _, instance, option, *more = arguments
        if not option.startswith("--fds=") or more[1:] or not all(word.startswith("--join=") for word in more):
            raise ValueError
        fds = Descriptors(*map(int, option[len("--fds=") :].split(",")))
        joins = int(more[0][len("--join=") :]) if more else -1
    except (ValueError, TypeError):
        sys.exit(
            "usage: triton_python_backend_stub INSTANCE --fds=DOWN,UP,REQUESTS,BELL_IN,BELL_OUT,LIFELINE[,REGIONS]"
            " [--join=JOINS]"
        )
    activation.keep_libraries()
    main(instance, fds, joins)
