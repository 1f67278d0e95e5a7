"""Creates traces and changes trace settings with the clients of tritonclient.

traces.py <http host:port> <gRPC host:port> infer|settings
"""

import asyncio
import queue
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException

HTTP, GRPC, WHAT = sys.argv[1:4]
LIMIT = 60  # seconds for each answer
CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def tensors(protocol):
    tensor = protocol.InferInput("IN", [1, 3], "INT32")
    tensor.set_data_from_numpy(np.array([[1, 2, 3]], dtype=np.int32))
    return [tensor]


def infer():
    with http.InferenceServerClient(HTTP) as client:
        client.infer("ident", tensors(http), request_id="http")
        client.infer("ens", tensors(http), request_id="ensemble", headers={"traceparent": CONTEXT, "tracestate": "a=b"})
        try:
            client.infer("bad", tensors(http), request_id="bad")
        except InferenceServerException:
            pass
        else:
            raise AssertionError("the model that fails has not failed")
    with grpc.InferenceServerClient(GRPC) as client:
        client.infer("ident", tensors(grpc), request_id="grpc", headers={"traceparent": CONTEXT})
        try:
            client.infer("bad", tensors(grpc), request_id="refused")
        except InferenceServerException:
            pass
        came = queue.Queue()
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer("rep", tensors(grpc), request_id="stream", enable_empty_final_response=True)
        for _ in range(3):
            _, error = came.get(timeout=LIMIT)
            assert error is None, error
        client.stop_stream()


def expect(got, **want):
    for key, value in want.items():
        assert got[key] == value, f"{key} is {got[key]}, want {value}: {got}"


def refused(text, change):
    try:
        change()
    except InferenceServerException as e:
        assert e.message() == text, f"got {e.message()!r}, want {text!r}"
    else:
        raise AssertionError(f"want {text!r}")


def settings():
    file = "trace file location can not be updated through network protocol"
    unknown = "Request for unknown model : none"
    with http.InferenceServerClient(HTTP) as client:
        assert "trace" in client.get_server_metadata()["extensions"]
        expect(client.get_trace_settings(), trace_level=["OFF"], trace_rate="1000", trace_count="-1", log_frequency="0", trace_mode="triton")
        assert client.get_trace_settings()["trace_file"].endswith("trace.json")
        expect(client.update_trace_settings(settings={"trace_rate": "7", "trace_level": ["TENSORS", "TIMESTAMPS"]}), trace_rate="7", trace_level=["TIMESTAMPS", "TENSORS"])
        expect(client.update_trace_settings("ident", {"trace_count": "5", "trace_level": None}), trace_rate="7", trace_count="5")
        expect(client.get_trace_settings("ident"), trace_count="5")
        expect(client.update_trace_settings(settings={"trace_level": None, "trace_rate": None}), trace_rate="1000", trace_level=["OFF"])
        refused(file, lambda: client.update_trace_settings(settings={"trace_file": "x"}))
        refused(unknown, lambda: client.get_trace_settings("none"))
    with grpc.InferenceServerClient(GRPC) as client:
        assert "trace" in client.get_server_metadata().extensions
        expect(client.get_trace_settings("ident", as_json=True)["settings"], trace_count={"value": ["5"]}, trace_level={"value": ["OFF"]})
        got = client.update_trace_settings("ident", {"trace_count": None, "log_frequency": "3"}, as_json=True)["settings"]
        expect(got, trace_count={"value": ["-1"]}, log_frequency={"value": ["3"]})
        got = client.update_trace_settings("ident", {"trace_level": ["TIMESTAMPS"], "log_frequency": None}, as_json=True)["settings"]
        expect(got, trace_level={"value": ["TIMESTAMPS"]}, log_frequency={"value": ["0"]})
        refused(file, lambda: client.update_trace_settings(settings={"trace_file": "x"}))
        refused(unknown, lambda: client.update_trace_settings("none", {"trace_rate": "1"}))
        client.update_trace_settings("ident", {"trace_level": None})


async def settings_of_coroutines():
    async with http_aio.InferenceServerClient(HTTP) as client:
        expect(await client.update_trace_settings(settings={"trace_rate": "9"}), trace_rate="9")
    async with grpc_aio.InferenceServerClient(GRPC) as client:
        got = await client.get_trace_settings(as_json=True)
        expect(got["settings"], trace_rate={"value": ["9"]})


if WHAT == "infer":
    infer()
else:
    settings()
    asyncio.run(settings_of_coroutines())
