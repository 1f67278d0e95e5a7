"""Further instances of the model in this process, each in a thread of its own.

The supervisor sends the name of an instance and its descriptors through the door, a socket that
preserves message boundaries. The process ends after its last instance, when the door is closed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Callable

from c_python_backend_utils import runtime

from . import process
from .process import Descriptors


class Crew:
    """The threads of the instances that came through the door."""

    def __init__(self, door: int, serve: Callable[[str, Descriptors], int]) -> None:
        self._door = socket.socket(fileno=door)
        self._door.set_inheritable(False)
        self._serve = serve
        self._threads: list[threading.Thread] = []
        runtime.divide()
        self._porter = threading.Thread(target=self._admit, name="pb_stub door", daemon=True)
        self._porter.start()

    def _admit(self) -> None:
        while True:
            name, fds = process.receive(self._door)
            if not name:
                return
            instance = name.decode()
            arguments = instance, Descriptors(*fds)
            thread = threading.Thread(target=self._run, args=arguments, name=f"pb_stub {instance}", daemon=True)
            thread.start()
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def _run(self, instance: str, fds: Descriptors) -> None:
        # Models expect a current loop, as the main thread has one before Python 3.14.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            self._serve(instance, fds)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def wait(self) -> None:
        """Wait until the door is closed and all further instances have ended."""
        self._porter.join()
        for thread in self._threads:
            thread.join()
