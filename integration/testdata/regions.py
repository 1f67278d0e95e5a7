"""Uses tensors in shared memory, with every tritonclient.

regions.py <http host:port> <gRPC host:port> <prefix of keys> <folder of marks> [leave]
"""

import asyncio
import contextlib
import os
import queue
import signal
import subprocess
import sys
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

HTTP, GRPC, PREFIX, MARKS = sys.argv[1:5]

SMALL = np.arange(5, dtype=np.float32)
LARGE = np.arange(300_000, dtype=np.float32)
TEXTS = np.array([b"", "žluťoučký".encode(), b"x" * 5000, b"\x00\xff"], dtype=np.object_)


class Sync:
    """A blocking client with the interface of an asyncio one."""

    def __init__(self, module, address):
        self.module, self.client = module, module.InferenceServerClient(address)

    def __getattr__(self, name):
        method = getattr(self.client, name)

        async def call(*arguments, **keywords):
            return method(*arguments, **keywords)

        return call


class Aio:
    def __init__(self, module, client):
        self.module, self.client = module, client

    def __getattr__(self, name):
        return getattr(self.client, name)


@contextlib.contextmanager
def region(name, size):
    """A shared-memory region of this process; its name is the end of its key."""
    handle = shm.create_shared_memory_region(name, PREFIX + name, size, create_only=True)
    try:
        yield handle
    finally:
        shm.destroy_shared_memory_region(handle)


def path_of(name):
    return "/dev/shm/" + PREFIX + name


async def fails(text, awaitable):
    """Checks that the call fails with a text that ends like this."""
    try:
        await awaitable
    except InferenceServerException as error:
        assert error.message().endswith(text), f"got {error.message()!r}, want {text!r}"
    else:
        raise AssertionError(f"no error, want {text!r}")


def tensors(c, data, source, target, size=None):
    """An input in one region and an output in another, each (name, offset)."""
    n = len(serialize_byte_tensor(data).item()) if data.dtype == np.object_ else data.nbytes
    name = "BYTES" if data.dtype == np.object_ else "FP32"
    given = c.module.InferInput("INPUT", list(data.shape), name)
    if source is None:
        given.set_data_from_numpy(data)
    else:
        given.set_shared_memory(source[0], n, offset=source[1])
    if target is None:
        return [given], None
    wanted = c.module.InferRequestedOutput("OUTPUT")
    wanted.set_shared_memory(target[0], n if size is None else size, offset=target[1])
    return [given], [wanted]


def put(handle, data, offset=0):
    shm.set_shared_memory_region(handle, [serialize_byte_tensor(data) if data.dtype == np.object_ else data], offset=offset)


def got(handle, data, offset=0):
    value = shm.get_contents_as_numpy(handle, data.dtype, list(data.shape), offset=offset)
    return np.array_equal(value, data)


async def life(c, which):
    """Register, use, unregister."""
    await c.unregister_system_shared_memory()
    await c.unregister_cuda_shared_memory()
    with region("in", 4 << 20) as source, region("out", 4 << 20) as target:
        await c.register_system_shared_memory("in", "/" + PREFIX + "in", 4 << 20)
        await c.register_system_shared_memory("out", PREFIX + "out", (4 << 20) - 4096, offset=4096)
        status = await c.get_system_shared_memory_status(**({"as_json": True} if "grpc" in which else {}))
        names = [r["name"] for r in status] if isinstance(status, list) else list(status["regions"])
        assert sorted(names) == ["in", "out"], status
        await fails("shared memory region 'in' already in manager", c.register_system_shared_memory("in", "/" + PREFIX + "in", 4096))
        await fails("is registered as system shared memory, not CUDA shared memory", c.get_cuda_shared_memory_status("in"))
        for model in "numbers", "cached", "chain", "batched":
            for data in SMALL, LARGE, np.zeros(0, np.float32):
                for offset in 0, 8:
                    put(source, data, offset)
                    put(target, np.full(data.size + 2, -1, np.float32), 4096 + offset)
                    inputs, outputs = tensors(c, data, ("in", offset), ("out", offset))
                    for result in [await c.infer(model, inputs, outputs=outputs) for _ in range(2)]:
                        output = result.get_output("OUTPUT")
                        shape = output["shape"] if isinstance(output, dict) else list(output.shape)
                        assert shape == [data.size], f"{model}: {output}"
                    assert got(target, data, 4096 + offset), f"{which} {model}: other values in the region"
                    assert got(target, np.full(2, -1, np.float32), 4096 + offset + data.nbytes), f"{which} {model}: more was written"
            inputs, _ = tensors(c, SMALL, ("in", 0), None)
            put(source, SMALL)
            assert np.array_equal((await c.infer(model, inputs)).as_numpy("OUTPUT"), SMALL), f"{which} {model}: only the input in a region"
        put(source, TEXTS)
        inputs, outputs = tensors(c, TEXTS, ("in", 0), ("out", 100))
        await c.infer("texts", inputs, outputs=outputs)
        assert got(target, TEXTS, 4196), f"{which}: other texts"
        # A region that is read and written in one request.
        put(source, SMALL)
        inputs, outputs = tensors(c, SMALL, ("in", 0), ("in", 0))
        await asyncio.gather(*(c.infer("numbers", inputs, outputs=outputs) for _ in range(8)))
        assert got(source, SMALL)
        # Rejected requests.
        n = SMALL.nbytes
        for size, text in (n - 1, f"({n - 1} bytes) should be at least {n} bytes to hold the results"), (1 << 40, "Invalid offset + byte size for shared memory region: 'out'"):
            inputs, outputs = tensors(c, SMALL, None, ("out", 0), size)
            await fails(text, c.infer("numbers", inputs, outputs=outputs))
        await fails("Unable to find shared memory region: 'none'", c.infer("numbers", tensors(c, SMALL, ("none", 0), None)[0]))
        short, _ = tensors(c, SMALL, ("in", 0), None)
        short[0].set_shared_memory("in", n - 4)
        await fails(f"Expected {n}, got {n - 4}", c.infer("numbers", short))
        short, _ = tensors(c, TEXTS, ("out", 0), None)
        put(target, np.full(4, 5, np.uint32), 4096)
        short[0].set_shared_memory("out", 9)
        await fails("expected 4 string elements for inference input 'INPUT' for model 'texts', got 1", c.infer("texts", short))
        if isinstance(c.client, http.InferenceServerClient):
            await fails("GPUs not supported", c.register_cuda_shared_memory("cuda", "A" * 86 + "==", 0, 64))
        await c.unregister_system_shared_memory("in")
        await fails("Unable to find shared memory region: 'in'", c.infer("numbers", tensors(c, SMALL, ("in", 0), None)[0]))
        await c.unregister_system_shared_memory()
        status = await c.get_system_shared_memory_status(**({"as_json": True} if "grpc" in which else {}))
        assert not status or not status.get("regions"), status


async def keys(c):
    """Invalid registrations."""
    unable = "Unable to open shared memory region: '%s'"
    os.symlink("/etc/passwd", path_of("link"))
    os.mkdir(path_of("folder"))
    os.mkfifo(path_of("pipe"))
    with region("file", 8192):
        os.link(path_of("file"), path_of("folder") + "/file")
        for key, text in (
            ("", "cannot register shared memory region 'r' - invalid shm key ''"),
            ("//", "cannot register shared memory region 'r' - invalid shm key '//'"),
            ("/triton_python_backend_shm_region_1", "as the key contains the reserved prefix 'triton_python_backend_shm_region_'"),
            ("/../etc/passwd", unable % "/../etc/passwd"),
            ("/..", unable % "/.."),
            (PREFIX + "link", unable % (PREFIX + "link")),
            (PREFIX + "folder", unable % (PREFIX + "folder")),
            (PREFIX + "folder/file", unable % (PREFIX + "folder/file")),
            (PREFIX + "pipe", "Invalid shared memory region: '%spipe'" % PREFIX),
        ):
            await fails(text, c.register_system_shared_memory("r", key, 64))
        await fails("invalid args", c.register_system_shared_memory("r", PREFIX + "file", 8193))
        await fails("invalid args", c.register_system_shared_memory("r", PREFIX + "file", 2**64 - 1, offset=4096))
        await fails("unable to process address spaceInvalid argument", c.register_system_shared_memory("r", PREFIX + "file", 64, offset=1))
        os.remove(path_of("folder") + "/file")
    os.remove(path_of("link"))
    os.rmdir(path_of("folder"))
    os.remove(path_of("pipe"))


def mark(name):
    return os.path.join(MARKS, name)


async def held(c, name, inputs, outputs, change):
    """Change something while a request is in the model."""
    request = asyncio.ensure_future(c.infer("hold", inputs, outputs=outputs, request_id=name))
    while not os.path.exists(mark(name + ".begun")):
        await asyncio.sleep(0.005)
    await change()
    open(mark(name + ".over"), "w").close()
    return await request


async def clients_that_meddle(c, which):
    """Truncate, replace and unregister while requests run."""
    with region("in", 4096) as source, region("out", 4096) as target:
        for name in "in", "out":
            await c.register_system_shared_memory(name, PREFIX + name, 4096)
        put(source, SMALL)
        inputs, outputs = tensors(c, SMALL, ("in", 0), ("out", 0))

        async def truncate_input():
            os.truncate(path_of("in"), 0)

        await held(c, which + "-input", inputs, outputs, truncate_input)
        assert got(target, SMALL)
        truncated = "shared memory region '%s' has been truncated by its owner"
        await fails(truncated % "in", c.infer("numbers", inputs))
        os.truncate(path_of("in"), 4096)
        put(source, SMALL)
        await c.infer("numbers", inputs)

        async def truncate_output():
            os.truncate(path_of("out"), 0)

        await fails(truncated % "out", held(c, which + "-output", inputs, outputs, truncate_output))
        assert os.stat(path_of("out")).st_size == 0, "the server has changed the size of the client's file"
        os.truncate(path_of("out"), 4096)
        put(target, np.zeros_like(SMALL))

        async def unregister():
            await c.unregister_system_shared_memory()
            await fails("Unable to find shared memory region: 'in'", c.infer("numbers", inputs))

        await held(c, which + "-unregister", inputs, outputs, unregister)
        assert got(target, SMALL), "the region that was unregistered has no output"

        # The file of a registered region is replaced: the region stays the old one.
        await c.register_system_shared_memory("in", PREFIX + "in", 4096)
        os.remove(path_of("in"))
        with open(path_of("in"), "wb") as other:
            other.write(bytes(4096))
        assert np.array_equal((await c.infer("numbers", inputs)).as_numpy("OUTPUT"), SMALL)
        await c.unregister_system_shared_memory("in")
        await c.register_system_shared_memory("in", PREFIX + "in", 4096)
        assert np.array_equal((await c.infer("numbers", inputs)).as_numpy("OUTPUT"), np.zeros_like(SMALL))
        await c.unregister_system_shared_memory()


def streams():
    """Each response of a decoupled model overwrites the previous one."""
    client = grpc.InferenceServerClient(GRPC)
    answers = queue.Queue()
    with region("in", 4096) as source, region("out", 4096) as target:
        for name in "in", "out":
            client.register_system_shared_memory(name, PREFIX + name, 4096)
        put(source, SMALL)
        inputs, outputs = tensors(Sync(grpc, GRPC), SMALL, ("in", 0), ("out", 0))
        client.start_stream(lambda result, error: answers.put((result, error)))
        try:
            for model, responses in ("repeat", 3), ("numbers", 1):
                client.async_stream_infer(model, inputs, outputs=outputs)
                for k in range(responses):
                    result, error = answers.get(timeout=60)
                    assert error is None, error
                    assert list(result.get_output("OUTPUT").shape) == [SMALL.size]
                    assert list(result.get_response().raw_output_contents) == [b""], "the output is in the message"
                assert got(target, SMALL * responses), f"{model}: other values in the region"
        finally:
            client.stop_stream()
        client.unregister_system_shared_memory()


async def leave(c):
    """Its regions are registered and in the model when the parent kills this process."""
    handle = shm.create_shared_memory_region("left", PREFIX + "left", 4096)
    put(handle, SMALL)
    await c.register_system_shared_memory("left", PREFIX + "left", 4096)
    inputs, outputs = tensors(c, SMALL, ("left", 0), ("left", 0))
    await c.infer("hold", inputs, outputs=outputs, request_id="leave")


async def clients_that_leave(c):
    child = subprocess.Popen([sys.executable, *sys.argv, "leave"])
    while not os.path.exists(mark("leave.begun")):
        assert child.poll() is None, "the client has ended by itself"
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    open(mark("leave.over"), "w").close()
    inputs, outputs = tensors(c, SMALL, ("left", 0), ("left", 64))
    assert np.array_equal((await c.infer("numbers", inputs)).as_numpy("OUTPUT"), SMALL), "the region is not what the client has left"
    await c.infer("numbers", inputs, outputs=outputs)
    await c.unregister_system_shared_memory()
    with contextlib.suppress(FileNotFoundError):
        os.remove(path_of("left"))


async def main():
    async with http_aio.InferenceServerClient(HTTP) as web, grpc_aio.InferenceServerClient(GRPC) as rpc:
        if sys.argv[5:] == ["leave"]:
            await leave(Aio(http_aio, web))
            return
        for which, c in ("http", Sync(http, HTTP)), ("http.aio", Aio(http_aio, web)), ("grpc", Sync(grpc, GRPC)), ("grpc.aio", Aio(grpc_aio, rpc)):
            await life(c, which)
            await keys(c)
        for which, c in ("http.aio", Aio(http_aio, web)), ("grpc.aio", Aio(grpc_aio, rpc)):
            await clients_that_meddle(c, which)
        await asyncio.to_thread(streams)
        await clients_that_leave(Aio(http_aio, web))


asyncio.run(main())
