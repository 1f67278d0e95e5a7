"""Sends tensors of all kinds through the identity models with every tritonclient.

clients.py <http host:port> <gRPC host:port>
"""

import asyncio
import concurrent.futures
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

HTTP, GRPC = sys.argv[1:3]

DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64, np.object_,
]
SHAPES = [(1,), (0,), (3, 0, 2), (7,), (2, 3, 4), (1, 1, 1, 1, 5), (1024,), (1025,), (1, 100, 333)]


def sample(dtype, shape):
    """Values that use the whole range of the type."""
    count = int(np.prod(shape, dtype=np.int64))
    generator = np.random.default_rng(count)
    if dtype == np.object_:
        texts = [b"", b"\x00\xff", "žluťoučký".encode(), b"x" * 300]
        return np.array([texts[i % len(texts)] for i in range(count)], dtype=np.object_).reshape(shape)
    if dtype == np.bool_:
        return generator.integers(0, 2, count).astype(np.bool_).reshape(shape)
    if np.issubdtype(dtype, np.floating):
        values = generator.standard_normal(count).astype(dtype)
        values[:3] = [np.inf, -0.0, np.finfo(dtype).tiny][: len(values[:3])]
        return values.reshape(shape)
    info = np.iinfo(dtype)
    values = generator.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    values[:2] = [info.min, info.max][: len(values[:2])]
    return values.reshape(shape)


def check(what, sent, got):
    assert got is not None, f"{what}: no output"
    assert got.shape == sent.shape, f"{what}: shape {got.shape}, want {sent.shape}"
    if sent.dtype == np.object_:
        same = [bytes(v) if not isinstance(v, str) else v.encode() for v in got.ravel()] == list(sent.ravel())
    else:
        assert got.dtype == sent.dtype, f"{what}: type {got.dtype}, want {sent.dtype}"
        same = got.tobytes() == sent.tobytes()
    assert same, f"{what}: other values"


def model_of(data):
    return f"identity_{data.ndim}"


def type_of(data):
    """The name in a config, which calls BYTES STRING."""
    return np_to_triton_dtype(data.dtype).replace("BYTES", "STRING")


def parts(module, data, **how):
    tensor = module.InferInput(f"INPUT_{type_of(data)}", list(data.shape), np_to_triton_dtype(data.dtype))
    tensor.set_data_from_numpy(data, **how)
    return [tensor]


def wanted(module, data, **how):
    return [module.InferRequestedOutput(f"OUTPUT_{type_of(data)}", **how)]


def output(result, data):
    return result.as_numpy(f"OUTPUT_{type_of(data)}")


def json_can(dtype, data):
    """JSON has no FP16 and no infinities, and its strings are UTF-8."""
    if dtype == np.float16:
        return False
    if dtype == np.object_:
        return all(v != b"\x00\xff" for v in data.ravel())
    return not np.issubdtype(dtype, np.floating) or bool(np.isfinite(data).all())


def by_http(client, dtype, shape):
    data = sample(dtype, shape)
    name = f"http {np.dtype(dtype).name} {shape}"
    check(name, data, output(client.infer(model_of(data), parts(http, data)), data))
    for compression in ("gzip", "deflate"):
        result = client.infer(
            model_of(data), parts(http, data),
            request_compression_algorithm=compression, response_compression_algorithm=compression,
        )
        check(f"{name} {compression}", data, output(result, data))
    if data.size > 5000 or dtype == np.float16:  # JSON has no FP16
        return
    if dtype == np.object_:  # and its strings are UTF-8
        data = np.array([v if v != b"\x00\xff" else b"y" for v in data.ravel()], dtype=np.object_).reshape(shape)
    elif np.issubdtype(dtype, np.floating):  # and its numbers are finite
        data = np.nan_to_num(data, posinf=1, neginf=1)
    result = client.infer(
        model_of(data), parts(http, data, binary_data=False), outputs=wanted(http, data, binary_data=False)
    )
    check(f"{name} json", data, output(result, data))


def by_grpc(client, dtype, shape):
    data = sample(dtype, shape)
    result = client.infer(model_of(data), parts(grpc, data), request_id="7")
    check(f"grpc {np.dtype(dtype).name} {shape}", data, output(result, data))
    assert result.get_response().id == "7"


async def by_aio():
    async with http_aio.InferenceServerClient(HTTP) as web, grpc_aio.InferenceServerClient(GRPC) as rpc:
        assert await web.is_server_ready() and await rpc.is_server_ready()
        for dtype in DTYPES:
            for shape in SHAPES:
                data = sample(dtype, shape)
                name = f"{np.dtype(dtype).name} {shape}"
                a, b = await asyncio.gather(
                    web.infer(model_of(data), parts(http_aio, data)),
                    rpc.infer(model_of(data), parts(grpc_aio, data)),
                )
                check(f"http.aio {name}", data, output(a, data))
                check(f"grpc.aio {name}", data, output(b, data))


def big():
    """64 MiB there and back."""
    data = np.arange(16 << 20, dtype=np.float32)
    with http.InferenceServerClient(HTTP, network_timeout=120, connection_timeout=120) as client:
        check("http 64 MiB", data, output(client.infer("identity_1", parts(http, data)), data))
    with grpc.InferenceServerClient(GRPC) as client:
        check("grpc 64 MiB", data, output(client.infer("identity_1", parts(grpc, data)), data))


def eight_at_once():
    """Each client sends its own data and must get it back."""

    def one(k):
        data = np.full((50_000,), k, dtype=np.int32)
        with http.InferenceServerClient(HTTP) as web, grpc.InferenceServerClient(GRPC) as rpc:
            for i in range(25):
                data[i] = i
                check(f"client {k} http", data, output(web.infer("identity_1", parts(http, data)), data))
                check(f"client {k} grpc", data, output(rpc.infer("identity_1", parts(grpc, data)), data))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for f in [pool.submit(one, k) for k in range(8)]:
            f.result()


def stream():
    """Each request of a stream gets a response with its own data and id."""
    answers = []
    with grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.append((result, error)))
        for i in range(20):
            data = np.array([i], dtype=np.int64)
            client.async_stream_infer("identity_1", parts(grpc, data), request_id=str(i))
        client.stop_stream()
    assert all(error is None for _, error in answers), answers
    assert sorted(int(r.get_response().id) for r, _ in answers) == list(range(20))
    for result, _ in answers:
        assert output(result, data)[0] == int(result.get_response().id)


def scalar():
    """A model may answer with a scalar; a request cannot carry one."""
    for module, address in ((http, HTTP), (grpc, GRPC)):
        with module.InferenceServerClient(address) as client:
            tensor = module.InferInput("INPUT0", [1], "INT32")
            tensor.set_data_from_numpy(np.array([9], dtype=np.int32))
            got = client.infer("scalar", [tensor]).as_numpy("OUTPUT0")
            assert got.shape == () and got == 9, f"{module.__name__}: got {got!r}, want a scalar 9"
            try:
                client.infer("identity_1", parts(module, np.array(5, dtype=np.int32)))
            except InferenceServerException as e:
                assert "unexpected shape for input 'INPUT_INT32'" in e.message(), e
            else:
                raise AssertionError("a 0-d input was taken")


def about(module, address):
    with module.InferenceServerClient(address) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("identity_1")
        client.get_server_metadata()
        client.get_model_metadata("identity_1")
        client.get_model_config("identity_1")
        client.get_inference_statistics("identity_1")
        client.get_model_repository_index()


def main():
    about(http, HTTP)
    about(grpc, GRPC)
    with http.InferenceServerClient(HTTP) as web, grpc.InferenceServerClient(GRPC) as rpc:
        for dtype in DTYPES:
            for shape in SHAPES:
                by_http(web, dtype, shape)
                by_grpc(rpc, dtype, shape)
    asyncio.run(by_aio())
    scalar()
    stream()
    eight_at_once()
    big()


main()
