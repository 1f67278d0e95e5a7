"""Makes requests and prints a server's counts after each: statistics over HTTP and gRPC, and metrics.

statistics.py <http host:port> <gRPC host:port> <metrics port> [triton]

Each line is a step and the counts of its model, equal for all servers that count in the same way. Times are only
checked for presence next to counts. A real Triton counts a cancelled request at the end of each iterative sequence;
with "triton" these are subtracted.
"""

import json
import queue
import re
import sys
import threading
import time
import urllib.request

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, METRICS = sys.argv[1:4]
PATIENCE = 60
web = http.InferenceServerClient(HTTP, concurrency=8, network_timeout=PATIENCE)
rpc = grpc.InferenceServerClient(GRPC)

INFER = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


def over_http(model):
    """The counts of a model, and a list of durations that are missing next to a count."""
    (s,) = web.get_inference_statistics(model)["model_stats"]
    stats = s["inference_stats"]
    assert list(stats) == list(INFER), list(stats)
    assert s["response_stats"] == {}, s
    if sys.argv[4:] == ["triton"]:
        assert s["memory_usage"] == [], s
    for use in s["memory_usage"]:
        assert use["type"] == "CPU" and use["id"] == 0 and use["byte_size"] > 0, s
    counts = {k: v["count"] for k, v in stats.items()}
    batches = {}
    for b in s["batch_stats"]:
        of = {b[k]["count"] for k in ("compute_input", "compute_infer", "compute_output")}
        assert len(of) == 1, b
        batches[b["batch_size"]] = of.pop()
    assert list(batches) == sorted(batches), batches
    for name in ("success", "fail"):
        assert (stats[name]["ns"] > 0) == (stats[name]["count"] > 0) or stats["cache_miss"]["count"] > 0, (name, stats)
    assert (s["last_inference"] > 0) == (s["execution_count"] > 0), s
    return {"inferences": s["inference_count"], "executions": s["execution_count"], **counts, "batches": batches}


def over_grpc(model):
    (s,) = rpc.get_inference_statistics(model).model_stats
    assert len(s.response_stats if hasattr(s, "response_stats") else ()) == 0
    counts = {name: getattr(s.inference_stats, name).count for name in INFER}
    batches = {b.batch_size: b.compute_infer.count for b in s.batch_stats}
    return {"inferences": s.inference_count, "executions": s.execution_count, **counts, "batches": batches}


def sample(text, name, model, **labels):
    labels = {"model": model, "version": "1", **labels}
    inside = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
    found = re.search(rf"^{name}{{{re.escape(inside)}}} (\S+)$", text, re.M)
    return found and float(found[1])


def pending(model):
    return sample(scrape(), "nv_inference_pending_request_count", model)


def scrape():
    with urllib.request.urlopen(f"http://{HTTP.split(':')[0]}:{METRICS}/metrics", timeout=PATIENCE) as answer:
        return answer.read().decode()


def in_metrics(model):
    text = scrape()
    counts = {
        "inferences": sample(text, "nv_inference_count", model),
        "executions": sample(text, "nv_inference_exec_count", model),
        "success": sample(text, "nv_inference_request_success", model),
        "fail": 0,
        "cache_hit": sample(text, "nv_cache_num_hits_per_model", model) or 0,
        "cache_miss": sample(text, "nv_cache_num_misses_per_model", model) or 0,
    }
    reasons = {}
    for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
        n = sample(text, "nv_inference_request_failure", model, reason=reason)
        counts["fail"] += n
        if n:
            reasons[reason] = int(n)
    assert sample(text, "nv_inference_pending_request_count", model) == 0
    summaries = {
        name: sample(text, f"nv_{name}_count", model)
        for name in ("inference_request_summary_us", "inference_queue_summary_us", "inference_compute_infer_summary_us",
                     "cache_hit_summary_per_model", "cache_miss_summary_per_model")
    }  # fmt: skip
    return counts, reasons, {k: int(v) for k, v in summaries.items() if v is not None}


def step(name, model, executions, act):
    """Acts, waits for that number of further executions and an empty queue, and prints the counts."""
    before = over_http(model)["executions"]
    outcome = act()
    deadline = time.monotonic() + PATIENCE
    while over_http(model)["executions"] < before + executions or pending(model) != 0:
        assert time.monotonic() < deadline, (name, model, over_http(model))
        time.sleep(0.01)
    counts = over_http(model)
    assert over_grpc(model) == counts, (over_grpc(model), counts)
    metrics, reasons, summaries = in_metrics(model)
    assert {k: counts[k] for k in metrics} == metrics, (metrics, counts)
    if model == "rounds" and sys.argv[4:] == ["triton"]:
        counts["fail"] -= reasons.pop("CANCELED", 0)
    print(
        json.dumps(
            {"step": name, "model": model, "outcome": outcome, **counts, "reasons": reasons, "summaries": summaries}
        )
    )


def text_of(error):
    """The beginning of an error's text, without the number of the instance."""
    return re.sub(r"_0_\d+", "_0_N", str(error.message()).split("\n")[0].split(",")[0])


def number(value, batch=1, name="IN", module=http):
    tensor = module.InferInput(name, [batch, 1], "INT32")
    tensor.set_data_from_numpy(np.full((batch, 1), value, np.int32))
    return tensor


def infer(model, value, batch=1, client=web, module=http, **more):
    try:
        result = client.infer(model, [number(value, batch, module=module)], **more)
    except InferenceServerException as error:
        return text_of(error)
    out = result.as_numpy("OUT")
    return None if out is None else out.flatten().tolist()


def together(model, *values):
    """Sends all requests at once. gRPC's client is thread-safe, HTTP's is not."""
    results = [None] * len(values)

    def run(i):
        results[i] = infer(model, values[i], client=rpc, module=grpc)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(values))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(map(str, results))


def stream(model, value, batch=1):
    """The number of responses to one request, including the final one."""
    answers = queue.Queue()
    with grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer(model, [number(value, batch, module=grpc)], enable_empty_final_response=True)
        responses = 0
        while True:
            result, error = answers.get(timeout=PATIENCE)
            if error is not None:
                return f"{responses} and {text_of(error)}"
            if result.get_response().parameters["triton_final_response"].bool_param:
                return str(responses)
            responses += 1


for model in ("plain", "batched"):
    step("one", model, 1, lambda: infer(model, 0))
    step("one over gRPC", model, 1, lambda: infer(model, 0, client=rpc, module=grpc))
    step("a batch of its own", model, 1, lambda: infer(model, 0, batch=3))
    step("an error of the request", model, 1, lambda: infer(model, -1))
    step("a failure", model, 1, lambda: infer(model, -2))
    step("an output that is none", model, 1, lambda: infer(model, -3))
    step("a response that was sent", model, 1, lambda: infer(model, -4))
    step("an error that was sent", model, 1, lambda: infer(model, -5))
    step("refused", model, 0, lambda: infer(model, 0, batch=9))
    step("unknown output", model, 0, lambda: infer(model, 0, outputs=[http.InferRequestedOutput("NONE")]))

step("no response", "decoupled", 1, lambda: stream("decoupled", 0))
step("some responses", "decoupled", 1, lambda: stream("decoupled", 3))
step("a batch", "decoupled", 1, lambda: stream("decoupled", 2, 4))
step("an error response", "decoupled", 1, lambda: stream("decoupled", -1))
step("a failure", "decoupled", 1, lambda: stream("decoupled", -2))

step("one round", "rounds", 1, lambda: infer("rounds", 1))
step("three rounds", "rounds", 3, lambda: infer("rounds", 3))
step("a failure after rounds", "rounds", 3, lambda: infer("rounds", -3))

step("a miss", "cached", 1, lambda: infer("cached", 0))
step("a hit", "cached", 0, lambda: infer("cached", 0, request_id="again"))
step("a hit over gRPC", "cached", 0, lambda: infer("cached", 0, client=rpc, module=grpc))
step("another", "cached", 1, lambda: infer("cached", 1))
step("a batch", "cached", 1, lambda: infer("cached", 0, batch=2))
step("the batch again", "cached", 0, lambda: infer("cached", 0, batch=2))
step("an error of the request", "cached", 1, lambda: infer("cached", -1))
step("a failure", "cached", 1, lambda: infer("cached", -2))
step("two at once", "cached", 2, lambda: together("cached", 300, 300))
step("the same again", "cached", 0, lambda: infer("cached", 300))
step("a miss", "kept", 1, lambda: infer("kept", 0))
step("after a miss", "plain", 0, lambda: None)
step("a hit", "kept", 0, lambda: infer("kept", 0))
step("after a hit", "plain", 0, lambda: None)
step("an error of a step", "kept", 0, lambda: infer("kept", -1))
step("the same error", "kept", 0, lambda: infer("kept", -1))
step("after errors", "plain", 0, lambda: None)
step("steps that hit", "steps", 1, lambda: infer("steps", 0))
step("after hits", "cached", 0, lambda: None)
step("steps that miss", "steps", 1, lambda: infer("steps", 7))
step("after a miss and a hit", "cached", 0, lambda: None)
step("a model that calls", "cached", 0, lambda: infer("caller", 0))
step("the model that calls", "caller", 0, lambda: None)

step("four together", "four", 1, lambda: together("four", 0, 0, 0, 0))
step("an error among four", "four", 1, lambda: together("four", 0, 0, -1, 0))
step("a failure of four", "four", 1, lambda: together("four", 0, 0, -2, 0))
step("four errors", "four", 1, lambda: together("four", -1, -1, -1, -1))


def waiting(requests, value):
    """Sends requests of which one executes, and returns their calls once the others wait."""
    answers = queue.Queue()
    calls = []
    for i in range(requests):
        tensor = number(value, module=grpc)
        calls.append(rpc.async_infer("queued", [tensor], lambda result, error: answers.put(error)))
        deadline = time.monotonic() + PATIENCE
        while i > 0 and pending("queued") != i:
            assert time.monotonic() < deadline, (i, pending("queued"))
            time.sleep(0.01)
    return calls, answers


def late():
    """Two requests with a queue timeout of 100 ms, behind two executions of 900 ms."""
    _, answers = waiting(2, 900)
    tensor = number(0, module=grpc)
    for _ in range(2):
        rpc.async_infer("queued", [tensor], lambda result, error: answers.put(error), timeout=100000)
    errors = [answers.get(timeout=PATIENCE) for _ in range(4)]
    return [text_of(e) for e in errors if e is not None]


def full():
    calls, answers = waiting(4, 900)
    refused = [infer("queued", 0) for _ in range(2)]
    for _ in calls:
        assert answers.get(timeout=PATIENCE) is None
    return refused


def cancelled():
    calls, answers = waiting(3, 900)
    for call in calls:
        call.cancel()
    for _ in calls:
        assert answers.get(timeout=PATIENCE) is not None


step("time-outs", "queued", 2, late)
step("a full queue", "queued", 4, full)
step("cancelled requests", "queued", 1, cancelled)
