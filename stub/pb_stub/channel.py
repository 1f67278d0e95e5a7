"""Channel: frames to and from the supervisor, through two rings in shared memory and two bells.

              down (read only)                        up
    words  tail posted sleep …             tail posted sleep head …
    ring   frames of the supervisor        frames of the stub

Any thread may send and any thread may wait. There is no reader thread: one of the waiting threads
reads the ring for all of them, puts the frames of other threads into their mailboxes, and hands the
reading to another thread when its own frame has arrived.

An event loop does not read, since no other thread could read while the loop is busy: it listens.
While no thread reads, the bell is *armed* for the loop, as if a thread slept. A thread that stops
reading arms it again, and a listener reads the frames that the bell announces.

Locks: `_reading` (the reader of the down ring) and `_sending` (the writer of the up ring) are not
held together by one thread on purpose. Neither is acquired blocking where Python may run code at
any time: `__del__`, weak reference callbacks and signal handlers may interrupt a thread even while
it writes a frame. Frames that they send then wait in `_deferred`, and tickets that they return in
`tickets`, until the current frame is written. Deferred frames are sent before anything that a
thread publishes later.

Ordering: on x86-64 stores are seen in order, and releasing a lock is a full barrier; elsewhere
`Fence` orders them.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Any, Callable, NoReturn, Protocol

from . import accelerator, layout, messages, process
from .errors import Closed, Detached, ForeignProcess, Gone, ProtocolError, StubError
from .fence import WEAKLY_ORDERED, Fence
from .handlers import Handlers, Interrupted
from .rings import Rings
from .spin import Spin

Mailbox = SimpleQueue  # of frames; an empty frame means: no thread reads, read yourself

_POSTED = layout.POSTED_AT // 8
_SLEEP = layout.SLEEP_AT // 4
_WITHDRAWN = layout.WITHDRAWN_AT // 8
_BEGUN = layout.BEGUN_AT // 8
_HEADER = messages.HEADER.size
_LONGEST = _HEADER + layout.MAX_BODY
_MOST_TICKETS = layout.MAX_BODY // 8
#: Up to this number, tickets wait for the answer to the current batch; more are sent separately.
_PATIENT_TICKETS = 64

#: How long the other threads of an instance that has ended may take to notice it.
_DETACH_NS = 1_000_000_000

_now = time.monotonic_ns
_me = threading.get_ident


class Listener(Protocol):
    """An event loop that expects frames."""

    def armed(self) -> None:
        """The bell is armed: wait for it, then call `heard`. Called in any thread."""


class Channel(process.AtForks):
    """Both directions between this stub and its supervisor."""

    def __init__(self, down: int, up: int, bell_in: int, bell_out: int, handlers: Handlers) -> None:
        self._down = mmap.mmap(down, layout.DOWN_SIZE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        # Not all of *up*: the pool's blocks follow its ring.
        self.up = mmap.mmap(up, layout.ARENA_AT, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        # Reading an item of a cast view is a single load; struct may read byte by byte.
        self._down32 = memoryview(self._down).cast("I")
        self._up32 = memoryview(self.up).cast("I")
        #: The control words, by index of 8 bytes.
        self.down64 = memoryview(self._down).cast("Q")
        self.up64 = memoryview(self.up).cast("Q")
        self._check()
        self.life: int = self._down32[layout.LIFE_AT // 4]
        self._bell_in = bell_in
        self._bell_out = bell_out
        os.set_blocking(bell_out, False)
        self._bell = select.poll()
        self._bell.register(bell_in, select.POLLIN)
        self._hangup = select.poll()
        self._hangup.register(bell_in, 0)

        self._reading = threading.Lock()
        self._waiting: list[Mailbox[bytes]] = []
        self._listeners: dict[int, Listener] = {}  # by id
        #: Both rings, in Python or compiled.
        made: Any = Rings if accelerator.module is None else accelerator.module.Rings
        self._rings: Rings = made(self._down, self.up, self.life, bell_out)
        #: Writes a frame and rings the bell in one step, so that no lock is needed; only compiled.
        self._send: Callable[[bytes], bool] | None = getattr(self._rings, "send", None)
        self._sleeps = 0
        self._begin_fence = Fence()
        self.spin = Spin(0)

        self._sending = threading.Lock()
        # Idents of the threads that hold _sending or wait for it, added before they acquire it:
        # interrupting code may find the lock held by its own thread.
        self._senders: set[int] = set()
        self._deferred: deque[bytes] = deque()
        self.tickets: deque[int] = deque()  # to be returned
        self._collecting: dict[int, list[int]] = {}  # by ident of the collecting thread
        #: Whether a batch is executed: its EXECUTED frame will carry the tickets.
        self.executing = False

        self._handlers = handlers
        handlers.waiting = Channel._await_bell.__code__
        handlers.receiving = Channel.receive.__code__
        self._foreign = False
        self._name = "a process that the model forked"
        #: Whether the supervisor may close its end, because the instance has ended or is about to.
        self.ending = False
        self.hook()

        #: Returns the mailbox of a frame that was read, or None if route has handled the frame.
        self.route: Callable[[bytes], Mailbox[bytes] | None] = lambda _: None
        #: Called before each sleep; returns the milliseconds until its next call, or None.
        self.idle: Callable[[], int | None] = lambda: None
        #: Ends the process if the supervisor violates the protocol. It does not raise in a thread
        #: that runs the model's code, which could catch the exception. If nothing owns the process,
        #: it raises.
        self.distrust: Callable[[str], NoReturn] = _distrust
        #: Stores a long body in a block and returns its descriptor; unspill reverses this.
        self.spill: Callable[[bytes], bytes] = _no_spill
        self.unspill: Callable[[bytes], bytes] = _no_spill

        self._up32[layout.VERSION_AT // 4] = layout.VERSION
        self._up32[layout.LIFE_AT // 4] = self.life
        self._up32[layout.MAGIC_AT // 4] = layout.MAGIC

    def _check(self) -> None:
        magic = self._down32[layout.MAGIC_AT // 4]
        if magic != layout.MAGIC:
            raise ProtocolError(f"the supervisor's file begins with {magic:#010x}, want {layout.MAGIC:#010x}")
        version = self._down32[layout.VERSION_AT // 4]
        if version != layout.VERSION:
            raise ProtocolError(f"the supervisor speaks version {version} of the protocol, this stub {layout.VERSION}")

    def disown(self) -> None:
        self._foreign = True
        self.ending = False

    def lose(self, instance: str, error: StubError) -> NoReturn:
        """End the process because the connection is broken; if the instance has ended, this thread."""
        if self.ending:
            raise Detached
        if isinstance(error, ForeignProcess):
            process.disown(instance, error)
        process.lose(instance, error)

    def detach(self) -> bool:
        """Wait until the supervisor has closed its end, which it does after the last frame.

        Other threads that wait for frames end then. Returns whether they have: otherwise they still
        use the descriptors.
        """
        with contextlib.suppress(Gone, Closed):
            box: Mailbox[bytes] = SimpleQueue()
            while True:
                self.receive(box)
        self._name = "an instance that has ended"
        self._foreign = True
        until = _now() + _DETACH_NS
        while self._waiting and _now() < until:
            time.sleep(0.001)
        # These keep the instance in cycles with objects that the model may have kept.
        self.route = lambda _: None
        self.idle = lambda: None
        self.spill = self.unspill = _no_spill
        self.distrust = _distrust
        return not self._waiting

    @property
    def foreign(self) -> bool:
        """Return whether the model forked this process after the channel was made, or it has ended."""
        return self._foreign

    # Reading.

    def receive(self, box: Mailbox[bytes], spin: Spin | None = None) -> bytes:
        """Wait for a frame for box, and read for all others meanwhile.

        Raises Gone if the supervisor exits. A separate Spin is for waits whose duration differs
        from the waits for batches.
        """
        waiting = self._waiting
        waiting.append(box)
        try:
            while True:
                if self._reading.acquire(False):
                    try:
                        while box.empty():
                            frame = self._wait(spin or self.spin)
                            to = self.route(frame)
                            if to is box:
                                return frame
                            if to is not None:
                                to.put(frame)
                    finally:
                        self._reading.release()
                if self._handlers.within and self._handlers.due():
                    self._handlers.leave()
                frame = box.get()
                if frame:
                    return frame
        finally:
            # Only after _reading is released: a thread that found it held is in the list, and is
            # woken here.
            waiting.remove(box)
            if waiting:
                waiting[0].put(b"")
            elif self._listeners:
                self._arm()

    def look(self) -> None:
        """Read the available frames without waiting, and route each to its thread."""
        if self._foreign or self._rings.empty() or not self._reading.acquire(False):
            return  # the reading thread does it
        try:
            self._drain()
        finally:
            self._stop_reading()

    def _drain(self) -> None:
        """Read all published frames. The caller holds _reading."""
        while not self._rings.empty():
            frame = self._wait(self.spin)
            to = self.route(frame)
            if to is not None:
                to.put(frame)

    def _stop_reading(self) -> None:
        self._reading.release()
        if self._waiting:
            self._waiting[0].put(b"")
        elif self._listeners:
            self._arm()

    # Listening.

    @property
    def bell(self) -> int:
        """The descriptor that becomes readable when the bell rings, for listeners."""
        return self._bell_in

    def listen(self, listener: Listener) -> None:
        """Arm the bell for a listener if no thread reads, and whenever a thread stops reading."""
        self._listeners[id(listener)] = listener
        self._arm()

    def unlisten(self, listener: Listener) -> None:
        self._listeners.pop(id(listener), None)
        if not self._listeners and self._sleeps & 1 and self._reading.acquire(False):
            if self._sleeps & 1:
                self._sleeps = count = (self._sleeps + 1) & 0xFFFFFFFF
                self._up32[_SLEEP] = count  # no listener needs the bell
            self._stop_reading()

    def heard(self) -> bool:
        """Read the announced frames; False if another thread reads, which also hears the bell."""
        if self._foreign or not self._reading.acquire(False):
            return False
        try:
            self._hear()
            self._drain()
        finally:
            self._stop_reading()
        return True

    def _hear(self) -> None:
        """Read the bell, which may already have been read. The caller holds _reading."""
        try:
            if self._bell.poll(0) and not os.read(self._bell_in, 4096) and self._rings.empty():
                raise Gone("the supervisor has gone")
        except OSError as error:
            raise lost(error) from error

    def _arm(self) -> None:
        """Arm the bell for the next frame, unless a thread reads.

        A reading thread calls this after releasing the lock, and finds every listener that found it
        held.
        """
        while self._listeners and not self._foreign and self._reading.acquire(False):
            try:
                self._sleeps = count = ((self._sleeps + 1) | 1) & 0xFFFFFFFF
                self._up32[_SLEEP] = count
                os.sched_yield()  # a full barrier between the store above and the check below
                quiet = self._rings.empty()
                if not quiet:
                    self._drain()
            finally:
                self._reading.release()
            if self._waiting:
                self._waiting[0].put(b"")  # it reads, and arms the bell when it stops
                return
            if quiet:
                for listener in list(self._listeners.values()):
                    listener.armed()
                return

    def knock(self) -> None:
        """Wake the supervisor for a changed word, whether or not it sleeps."""
        if self._foreign:
            return
        try:
            os.write(self._bell_out, b"!")
        except BlockingIOError:
            pass  # the bell already has enough to wake it
        except OSError as error:
            raise lost(error) from error

    def pause(self) -> None:
        """Wait briefly for an event without a frame or bell, in a call of the model."""
        if self._handlers.within and self._handlers.due():
            self._handlers.leave()
        self.moment()

    def moment(self) -> None:
        """Wait very briefly, for a word that the supervisor is about to set."""
        if self._hangup.poll(1):
            raise Gone("the supervisor has gone")

    def begin_ahead(self, batch: int) -> bool:
        """Begin a batch that was handed ahead; False if the supervisor has withdrawn it.

        One thread only. A full barrier is needed between the store and the load, so that at least
        one side sees the other's word. Acquiring and releasing a private lock uses locked
        instructions. On x86-64 these are full barriers, which take a tenth of the time of
        `sched_yield` and do not yield the core. Elsewhere a lock orders less, so the scheduler's
        barrier is used.
        """
        self.up64[_BEGUN] = batch
        if WEAKLY_ORDERED:
            os.sched_yield()
        else:
            self._begin_fence()
        return self.down64[_WITHDRAWN] != batch

    def _wait(self, spin: Spin) -> bytes:
        """Take the next frame from the ring, waiting for it. The caller holds _reading."""
        if self._foreign:
            raise ForeignProcess(f"{self._name} cannot wait for the server")
        try:
            frame = self._rings.next(spin)
        except ProtocolError as error:
            self.distrust(str(error))
        if not isinstance(frame, bytes):
            frame = self._await_frame(spin, frame)
        return self.unspill(frame) if frame[6] & messages.SPILLED else frame

    def _await_frame(self, spin: Spin, began: int) -> bytes:
        """Sleep until there is a frame, and take it; began is the time before the wait."""
        handlers = self._handlers
        while True:
            while self._rings.empty():
                if handlers.within and handlers.due():
                    handlers.leave()
                self._sleep()
            spin.waited(self.down64[_POSTED] - began)
            try:
                frame = self._rings.take()
            except ProtocolError as error:
                self.distrust(str(error))
            if frame is not None:
                return frame
            if self._foreign:
                raise ForeignProcess(f"{self._name} cannot wait for the server")

    def _sleep(self) -> None:
        """Sleep until the bell rings or idle is due."""
        timeout = self.idle()
        self._sleeps = count = ((self._sleeps + 1) | 1) & 0xFFFFFFFF  # the bell may have been armed
        self._up32[_SLEEP] = count
        os.sched_yield()  # a full barrier between the store above and the check below
        try:
            if self._rings.empty() and self._await_bell(timeout) and self._rings.empty():
                raise Gone("the supervisor has gone")
        except Interrupted:
            pass  # the caller finds out why
        except OSError as error:
            raise lost(error) from error
        finally:
            self._sleeps = count = (self._sleeps + 1) & 0xFFFFFFFF
            self._up32[_SLEEP] = count

    def _await_bell(self, timeout: int | None) -> bool:
        """Wait for the bell; True if the supervisor has exited.

        Interrupted may be raised anywhere here.
        """
        if self._handlers.within and self._handlers.due():
            return False
        return (timeout is None or bool(self._bell.poll(timeout))) and not os.read(self._bell_in, 4096)

    # Sending.

    def publish(self, frame: bytes) -> None:
        """Send a whole frame, waiting while the ring is full."""
        if self._foreign:
            raise ForeignProcess(f"{self._name} cannot talk to the server")
        if len(frame) > _LONGEST:
            frame = self._spilled(frame)
        # In this order: a thread that takes a deferred frame is in _senders until it is written.
        send = self._send
        try:
            # No other thread is sending. If one starts just before this, it can only be waiting for
            # room, because it does not write a frame in parts. Its frame may come after this one.
            sent = not self._deferred and not self._senders and send is not None and send(frame)
        except OSError as error:
            raise lost(error) from error
        if not sent:
            me = _me()
            if me in self._senders:
                self._deferred.append(frame)
                return
            self._senders.add(me)
            try:
                with self._sending:
                    if self._deferred:
                        self._write_deferred()
                    self._write(frame)
            finally:
                self._senders.discard(me)
            self._ring()
        if self._deferred:
            self._publish_deferred()
        if self.tickets and not self.executing:
            self._release_tickets()

    def post(self, frame: bytes) -> None:
        """Send a short frame, now or after the next one. May be called anywhere; never waits."""
        if self._foreign:
            return
        self._deferred.append(frame)
        while self._deferred and self._send_if_free(self._next_deferred):
            pass

    def _next_deferred(self) -> bytes:
        try:
            return self._deferred.popleft()
        except IndexError:
            return b""  # another thread has sent it

    def _send_if_free(self, take: Callable[[], bytes]) -> bool:
        """Send the short frame returned by take, without waiting. Returns whether it was sent.

        Nothing is sent if another thread is sending, which checks for more frames afterwards, if
        there is no room, or if take returns nothing.
        """
        me = _me()
        if me in self._senders:
            return False
        self._senders.add(me)
        try:
            if not self._sending.acquire(False):
                return False
            try:
                # Room for the frame, a PAD before it, and a frame that another thread is about to
                # send, so that nothing here waits.
                if self._rings.room() < 3 * _LONGEST:
                    return False
                frame = take()
                if not frame:
                    return False
                self._write(frame)
            finally:
                self._sending.release()
        finally:
            self._senders.discard(me)
        self._ring()
        return True

    def _publish_deferred(self) -> None:
        # Not through publish, which calls this: there may be more frames than the recursion limit.
        me = _me()
        while self._deferred:
            self._senders.add(me)
            try:
                with self._sending:
                    self._write_deferred()
            finally:
                self._senders.discard(me)
            self._ring()

    def _write_deferred(self) -> None:
        """Write deferred frames before later ones: a descriptor follows the LEND of its allocation.

        The caller holds _sending, also while a frame is taken: a frame taken earlier could be
        overtaken.
        """
        while frame := self._next_deferred():
            self._write(frame)

    def _spilled(self, frame: bytes) -> bytes:
        _, kind, flags, life, _, ident = messages.HEADER.unpack_from(frame)
        return messages.encode(kind, life, ident, self.spill(frame[_HEADER:]), flags | messages.SPILLED)

    def _write(self, frame: bytes) -> None:
        """Copy a frame into the ring, waiting for room. The caller holds _sending.

        No bell announces room: the supervisor reads at full speed.
        """
        while not self._rings.write(frame):
            self._ring()
            self.moment()

    def _ring(self) -> None:
        try:
            self._rings.ring()
        except OSError as error:
            raise lost(error) from error

    # Tickets.

    def give_back(self, ticket: int) -> None:
        """Return a loan, with the next frame or at once. May be called anywhere; never waits."""
        if self._collecting:
            collected = self._collecting.get(_me())
            if collected is not None:
                collected.append(ticket)
                return
        self.tickets.append(ticket)
        if not self.executing or len(self.tickets) > _PATIENT_TICKETS:
            self._release_tickets()

    def collect_tickets(self, let_go: Callable[[], object]) -> list[int]:
        """Take waiting tickets, and those of loans that end in this thread during let_go()."""
        me = _me()
        self._collecting[me] = tickets = self.take_tickets() if self.tickets else []
        try:
            let_go()
        finally:
            del self._collecting[me]
        return tickets

    def take_tickets(self) -> list[int]:
        """Take the tickets to be returned, for a frame that carries them."""
        tickets: list[int] = []
        waiting = self.tickets
        with contextlib.suppress(IndexError):  # another thread has taken the last one
            while waiting and len(tickets) < _MOST_TICKETS:
                tickets.append(waiting.popleft())
        return tickets

    def release_tickets(self) -> None:
        """Send the tickets that wait for the answer to the batch, which may take long."""
        if self.tickets:
            self._release_tickets()

    def _release_tickets(self) -> None:
        """Send the tickets now. If another thread is sending, it checks for them afterwards."""
        while self.tickets and not self._foreign and self._send_if_free(self._next_tickets):
            if self._deferred:
                self._publish_deferred()

    def _next_tickets(self) -> bytes:
        tickets = self.take_tickets()
        return messages.released(self.life, tickets) if tickets else b""


def _distrust(text: str) -> NoReturn:
    raise ProtocolError(text)


def _no_spill(body: bytes) -> bytes:
    raise ProtocolError(f"a body of {len(body)} bytes came before INITIALIZE")


def lost(error: OSError) -> Closed:
    """Make the error for a descriptor to the server that does not work."""
    if error.errno == errno.EBADF:
        gone = process.closed()
        return Closed(f"the model has closed descriptors that lead to the server: {gone}" if gone else str(error))
    return Closed(f"the connection to the server is broken: {error}")
