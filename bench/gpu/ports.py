"""Ports for the servers of benchmarks and tests."""

import socket


class Port:
    """A port of 127.0.0.1, reserved until close.

    Its socket is bound but does not listen, so a server that sets SO_REUSEADDR, as Go's do, can
    listen on the same port. The kernel gives the port to no other process that asks for any port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()
