"""Open requests: their responses so far, and whether the client is still connected."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Collection

from triton_python_backend_utils import InferenceRequest, InferenceResponse, TritonError

from .copies import empty_response, error_response, received_response
from .declared import Declared

_NOTHING_SENT = "execute returned no response for this request, and none was sent."
_NOT_ENDED = "the response sender was dropped before it had sent the final flag."


class Client:
    """The client of a request. It waits for responses until it goes away."""

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience  # it goes away after this many responses; None: it stays

    def gone(self, responses: int) -> bool:
        return self.patience is not None and responses >= self.patience


class Exchange:
    """The responses to one request, in order. Implements `runtime.Outlet`."""

    def __init__(
        self,
        instance: str,
        decoupled: bool,
        wanted: Collection[str] | None,
        client: Client,
        declared: Declared | None = None,
    ) -> None:
        self.decoupled = decoupled
        #: The fault of the first invalid response, which the client receives as an error.
        self.fault = ""
        self._declared = declared
        self._instance = instance
        self._wanted = wanted
        self._client = client
        self._changed = threading.Condition()
        self._sent: list[tuple[InferenceResponse | None, bool]] = []
        self._over = False

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        fault = "" if response is None or self._declared is None else self._declared.odd(response)
        if fault:
            self.fault = self.fault or fault
            response = error_response(TritonError(fault))
        copy = None if response is None else received_response(response, self._wanted)
        with self._changed:
            if not self._over:
                self._sent.append((copy, final))
                self._over = final
                self._changed.notify_all()

    def is_cancelled(self) -> bool:
        return self._client.gone(len(self._sent))

    def cancel(self) -> None:
        """Make the client go away now."""
        self._client.patience = 0

    def dropped(self, sends: int) -> None:
        if sends and not self.decoupled:
            self.send(None, True)
        else:
            self.fail(_NOT_ENDED if sends or self.decoupled else _NOTHING_SENT)

    def fail(self, text: str) -> None:
        """End the request with the error that a client of a server gets."""
        text = f"Failed to process the request(s) for model '{self._instance}', message: {text}"
        self.send(error_response(TritonError(text)), True)

    def wait(self, deadline: float) -> bool:
        """Wait until the request is complete; False if the deadline passes first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._over, max(0.0, deadline - time.monotonic()))

    def responses(self) -> list[InferenceResponse]:
        """Return the responses that the client has received."""
        with self._changed:
            return [response for response, _ in self._sent if response is not None]

    def take(self, number: int) -> tuple[InferenceResponse, bool]:
        """Wait for a response as a caller sees it: the final flag alone is an empty response."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._sent) > number)
            response, final = self._sent[number]
            return response or empty_response(), final


class Exchanges:
    """The requests of one Server with their clients and responses, by request handle."""

    def __init__(self) -> None:
        self._handles = count(1)
        self._mu = threading.Lock()
        self._clients: dict[int, Client] = {}
        self._exchanges: dict[int, Exchange] = {}

    def register(self, request: InferenceRequest, client: Client) -> None:
        """Give a request a handle and its client."""
        with self._mu:
            request._handle = next(self._handles)
            self._clients[request._handle] = client

    def client(self, request: InferenceRequest) -> Client:
        """Return the client of a request; if none was registered, one that never goes away."""
        with self._mu:
            return self._clients.setdefault(request._handle, Client()) if request._handle else Client()

    def open(self, request: InferenceRequest, exchange: Exchange) -> None:
        """Give a request a handle and the exchange that takes its responses."""
        with self._mu:
            request._handle = next(self._handles)
            self._exchanges[request._handle] = exchange

    def of(self, request: InferenceRequest, instance: str) -> Exchange | None:
        """Return the exchange of a request, creating it for that instance if needed.

        None for requests without a handle.
        """
        handle = request._handle
        if not handle:
            return None
        client = self.client(request)
        with self._mu:
            if handle not in self._exchanges:
                self._exchanges[handle] = Exchange(instance, True, request.requested_output_names() or None, client)
            return self._exchanges[handle]
