"""Further instances of the model in this process, each in a thread of its own.

The supervisor sends the name of an instance and its descriptors through a socket that preserves
message boundaries. When the socket is closed, no more instances join, and the process ends with its
last instance.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from typing import Callable

from c_python_backend_utils import runtime

from . import process
from .process import Descriptors


class Joins:
    """The threads of the instances that have joined."""

    def __init__(self, fd: int, serve: Callable[[str, Descriptors], int]) -> None:
        self._socket = socket.socket(fileno=process.move(fd, "the socket for further instances"))
        self._serve = serve
        self._threads: list[threading.Thread] = []
        runtime.separate()
        self._accepting = threading.Thread(target=self._accept, name="pb_stub joins", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        try:
            while True:
                name, fds = process.receive(self._socket)
                if not name:
                    return
                instance = name.decode()
                arguments = instance, Descriptors(*fds)
                thread = threading.Thread(target=self._run, args=arguments, name=f"pb_stub {instance}", daemon=True)
                thread.start()
                self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        except Exception as error:  # the model has closed the socket, or there can be no more threads
            gone = process.closed()
            text = f"the model has closed descriptors that lead to the server: {gone}" if gone else str(error)
            process.complain("a shared process", f"no further instance can join: {text}")
            os._exit(process.EXIT_LOST)

    def _run(self, instance: str, fds: Descriptors) -> None:
        import asyncio

        # Models expect a current loop, as the main thread has one before Python 3.14.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            self._serve(instance, fds)
        finally:
            with contextlib.suppress(Exception):  # the model may have replaced or closed it
                asyncio.set_event_loop(None)
                loop.close()
            gc.collect()  # the instance's memory

    def wait(self) -> None:
        """Wait until the socket is closed and all further instances have ended."""
        self._accepting.join()
        for thread in self._threads:
            thread.join()
