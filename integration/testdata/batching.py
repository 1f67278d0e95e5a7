"""Sends requests that wait for each other to models with dynamic_batching, and checks which are executed together.

batching.py <http host:port> <gRPC host:port> <metrics host:port> <directory> <stories, separated by commas>

A request whose id begins with "slow" takes long. One whose id begins with "hold" keeps its model busy until a file of
that name is in the directory, and writes a mark there when it begins.
"""

import concurrent.futures
import os
import re
import sys
import threading
import time
import urllib.request

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, METRICS, DIRECTORY, STORIES = sys.argv[1:6]
LIMIT = 60  # seconds for each step
SLOW = 4  # requests before the holding one


def until(what, ok):
    end = time.monotonic() + LIMIT
    while not ok():
        assert time.monotonic() < end, f"waited {LIMIT} s until {what}"
        time.sleep(0.002)


def metric(name, model):
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=LIMIT) as reply:
        text = reply.read().decode()
    return int(float(re.search(rf'^{name}{{model="{model}",version="1"[^}}]*}} (\S+)$', text, re.M).group(1)))


def expect(what, got, want):
    assert got == want, f"{what}: got {got}, want {want}"


class Story:
    """One model, and the requests that are sent to it."""

    def __init__(self, model):
        self.model = model
        self.client = grpc.InferenceServerClient(GRPC)
        self.answers = {}
        self.calls = {}
        self.changed = threading.Condition()

    def send(self, request_id, shape=(1, 1), **more):
        tensor = grpc.InferInput("X", list(shape), "FP32")
        tensor.set_data_from_numpy(np.zeros(shape, np.float32))

        def came(result, error):
            with self.changed:
                self.answers[request_id] = error if error is not None else result.as_numpy("BATCH").ravel()[0].decode()
                self.changed.notify_all()

        self.calls[request_id] = self.client.async_infer(self.model, [tensor], came, request_id=request_id, **more)

    def told(self, **more):
        """Returns the error of one request over HTTP."""
        tensor = http.InferInput("X", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
        try:
            http.InferenceServerClient(HTTP, network_timeout=LIMIT).infer(self.model, [tensor], **more)
        except InferenceServerException as error:
            return error_of(error)
        return "nothing"

    def waiting(self, count):
        until(
            f"{count} requests wait for {self.model}",
            lambda: metric("nv_inference_pending_request_count", self.model) == count,
        )

    def hold(self, name="hold"):
        """Occupies an instance of a model that is known to be too slow to receive a batch ahead."""
        for n in range(SLOW):
            self.send(f"slow{n}")
            self.answer(f"slow{n}")
        self.send(name)
        until(f"{name} has begun", lambda: os.path.exists(self.path(name) + ".begun"))

    def path(self, name):
        return os.path.join(DIRECTORY, f"{self.model}.{name}")

    def release(self, name="hold"):
        open(self.path(name), "w").close()

    def line_up(self, *requests):
        """Sends requests one after the other, each an id or an id with arguments of send."""
        for n, r in enumerate(requests):
            request_id, more = (r, {}) if isinstance(r, str) else r
            self.send(request_id, **more)
            self.waiting(n + 1)

    def answer(self, request_id):
        with self.changed:
            assert self.changed.wait_for(lambda: request_id in self.answers, LIMIT), (
                f"{self.model}: no answer to {request_id}"
            )
            return self.answers[request_id]

    def batches(self, *ids):
        """Returns which requests were executed together, in the order of ids."""
        return list(dict.fromkeys(self.answer(i) for i in ids))

    def statistics(self):
        return self.client.get_inference_statistics(self.model).model_stats[0]


def error_of(got):
    assert isinstance(got, InferenceServerException), f"got {got}, want an error"
    return f"{got.status()}: {got.message()}"


def whatever_waits(s):
    s.hold()
    s.line_up("a", "b", "c", "d", "e", "f")
    s.release()
    expect(s.model, s.batches("a", "b", "c", "d", "e", "f"), ["a+b+c+d", "e+f"])
    until("all is counted", lambda: s.statistics().execution_count == 3 + SLOW)
    stats = s.statistics()
    expect("inferences", stats.inference_count, 7 + SLOW)
    expect(
        "batch sizes",
        [(b.batch_size, b.compute_infer.count) for b in stats.batch_stats],
        [(1, 1 + SLOW), (2, 1), (4, 1)],
    )
    expect("counts", [stats.inference_stats.success.count, stats.inference_stats.queue.count], [7 + SLOW] * 2)


def sizes(s):
    s.hold()
    s.line_up(("a", {"shape": (2, 1)}), ("b", {"shape": (3, 1)}), "c", ("d", {"shape": (4, 1)}))
    s.release()
    expect(s.model, s.batches("a", "b", "c", "d"), ["a", "b+c", "d"])
    until("all is counted", lambda: s.statistics().execution_count == 4 + SLOW)
    expect(
        "batch sizes",
        [(b.batch_size, b.compute_infer.count) for b in s.statistics().batch_stats],
        [(1, 1 + SLOW), (2, 1), (4, 2)],
    )


def preferred(s):
    s.hold()
    s.line_up(*"abcdefg")
    s.release()
    expect(s.model, s.batches(*"abcdefg"), ["a+b+c+d", "e+f", "g"])


def alike(s):
    s.hold()
    s.line_up("a", "b", ("c", {"shape": (1, 2)}), ("d", {"shape": (1, 2)}), "e")
    s.release()
    expect(s.model, s.batches(*"abcde"), ["a+b", "c+d", "e"])


def differs(s):
    s.hold()
    s.line_up("a", "b", ("c", {"shape": (1, 2)}))
    s.release()
    expect(s.model, s.batches(*"abc"), ["a+b", "c"])


def ragged(s):
    s.hold()
    s.line_up("a", ("b", {"shape": (1, 2)}), ("c", {"shape": (1, 3)}))
    s.release()
    expect(s.model, s.batches(*"abc"), ["a+b+c"])


def priorities(s):
    s.hold()
    s.line_up(
        ("a", {"priority": 3}),
        "b",
        ("c", {"priority": 1}),
        ("d", {"priority": 2}),
        ("e", {"priority": 9}),
        ("f", {"priority": 1}),
    )
    s.release()
    expect(s.model, s.batches(*"cfbdea"), ["c+f", "b+d", "e+a"])


def rejected(s):
    s.hold()
    s.send("a")
    s.send("b", timeout=1000)
    for request_id in "ab":
        expect(s.model, error_of(s.answer(request_id)), "StatusCode.UNAVAILABLE: Request timeout expired")
    expect(s.model, s.told(timeout=1000), "503: Request timeout expired")
    s.release()
    expect(s.model, s.batches("hold"), ["hold"])
    expect("failures", s.statistics().inference_stats.fail.count, 3)


def unheard(s):
    """The timeout of a request has no effect unless the policy allows it."""
    s.hold()
    s.line_up(("a", {"timeout": 1}), "b")
    s.release()
    expect(s.model, s.batches(*"ab"), ["a+b"])


def by_level(s):
    """The policy of a level takes precedence over the default policy."""
    s.hold()
    s.line_up(("a", {"timeout": 1000}), "b", ("c", {"priority": 2}))
    s.send("d")
    expect("the fourth", error_of(s.answer("d")), "StatusCode.UNAVAILABLE: [request id: d] Exceeds maximum queue size")
    s.send("e", priority=1)
    expect("the first level", error_of(s.answer("e")), "StatusCode.UNAVAILABLE: Request timeout expired")
    expect("over HTTP", s.told(priority=1), "503: Request timeout expired")
    s.waiting(3)
    s.release()  # the first has waited longer than its timeout, because the others were queued after it
    expect(s.model, s.batches(*"bca"), ["b+c", "a"])


def delayed(s):
    s.hold()
    s.line_up("a", "b")
    time.sleep(0.2)  # until both have timed out
    s.send("c", timeout=10_000_000)
    s.waiting(3)
    s.release()
    expect(s.model, s.batches(*"cab"), ["c+a", "b"])


def full(s):
    s.hold()
    s.line_up("a", "b")
    s.send("c")
    expect(s.model, error_of(s.answer("c")), "StatusCode.UNAVAILABLE: [request id: c] Exceeds maximum queue size")
    s.release()
    expect(s.model, s.batches(*"ab"), ["a", "b"])
    expect("failures", s.statistics().inference_stats.fail.count, 0)


def cancelled(s):
    s.hold()
    s.line_up("a", "b", "c")
    s.calls["a"].cancel()
    s.waiting(2)
    s.release()
    expect(s.model, s.batches(*"bc"), ["b+c"])


def ordered(s):
    s.hold()
    for request_id in "ab":  # executed by the other instance
        s.send(request_id)
        until(f"{request_id} has been executed", lambda i=request_id: os.path.exists(s.path(i) + ".begun"))
    until("they have been counted", lambda: metric("nv_inference_exec_count", s.model) == 2 + SLOW)
    expect("answers before the first request has its own", [i for i in s.answers if i in ("hold", "a", "b")], [])
    s.release()
    expect(s.model, s.batches("hold", "a", "b"), ["hold", "a", "b"])


def waits_for_more(s):
    s.send("a")
    s.waiting(1)
    s.send("b")
    expect(s.model, s.batches("a", "b"), ["a+b"])


def waits_in_vain(s):
    begin = time.monotonic()
    s.send("a")
    expect(s.model, s.batches("a"), ["a"])
    took = time.monotonic() - begin
    assert took >= 0.3, f"a lone request was answered after {took} s, want 0.3 s"


def partial_failure(s):
    s.hold()
    s.line_up("a", "fails", "c")
    s.release()
    expect(s.model, s.batches("a", "c"), ["a+fails+c"])
    expect("the other", error_of(s.answer("fails")), "StatusCode.INTERNAL: as it was asked to")


def whole_failure(s):
    s.hold()
    s.line_up("a", "raises", "c")
    s.release()
    for request_id in ("a", "raises", "c"):
        got = error_of(s.answer(request_id))
        assert "for all of them" in got, got
    s.send("d")
    expect("afterwards", s.answer("d"), "d")


def one_by_one(s):
    s.hold()
    s.line_up(*"abc")
    s.release()
    expect(s.model, s.batches(*"abc"), ["a", "b", "c"])


def by_volume(s):
    s.hold()
    s.line_up(*"abcdefg", ("big", {"shape": (1, 100)}), "h")
    s.release()
    expect(s.model, s.batches(*"abcdefg", "big", "h"), ["a+b+c", "d+e+f", "g", "big", "h"])


def held_at_first(s):
    s.line_up("a", "b")
    s.send("c")
    expect(s.model, s.batches(*"abc"), ["a+b+c"])
    s.send("d")
    expect(s.model, s.batches("d"), ["d"])


def many(s):
    """Requests from many threads: each is answered, in batches of the allowed size."""
    clients, each = 8, 40

    def run(n):
        for i in range(each):
            request_id = f"{n}.{i}"
            s.send(request_id)
            got = s.answer(request_id).split("+")
            assert request_id in got, f"{request_id} was answered with {got}"
            assert len(got) <= 4, f"a batch of {got}"

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(run, n) for n in range(clients)]:
            done.result()
    until("all are counted", lambda: s.statistics().inference_count == clients * each)


for name in STORIES.split(","):
    globals()[name](Story(name))
    print(name)
