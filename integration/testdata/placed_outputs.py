"""Requests large outputs in shared memory, which the model's process writes itself.

placed_outputs.py <http host:port> <gRPC host:port> <prefix of keys> <folder of marks>
"""

import asyncio
import os
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

HTTP, GRPC, PREFIX, MARKS = sys.argv[1:5]
N = 1 << 19  # elements
SIZE = 4 * N  # bytes of a tensor
ROOM = 4 * SIZE  # of a region
COUNTED = np.arange(N, dtype=np.float32)


class Region:
    def __init__(self, client, name):
        self.client, self.name = client, name
        self.path = "/dev/shm/" + PREFIX + name
        self.handle = shm.create_shared_memory_region(name, PREFIX + name, ROOM)
        self.all = shm.get_contents_as_numpy(self.handle, np.float32, [ROOM // 4])
        self.all[:] = -1

    def register(self):
        self.client.register_system_shared_memory(self.name, PREFIX + self.name, ROOM)

    def unregister(self):
        self.client.unregister_system_shared_memory(self.name)

    def at(self, element):
        return self.all[element : element + N]


class Client:
    """One kind of client, with a region for inputs and one for outputs."""

    def __init__(self, module, address, name):
        self.module, self.address = module, address
        self.client = module.InferenceServerClient(address)
        self.source, self.target = Region(self.client, name + "-in"), Region(self.client, name + "-out")

    def inputs(self, region, element, n=N):
        given = self.module.InferInput("INPUT", [n], "FP32")
        given.set_shared_memory(region.name, 4 * n, offset=4 * element)
        return [given]

    def outputs(self, *places):
        wanted = []
        for name, region, element, size in places:
            output = self.module.InferRequestedOutput(name)
            output.set_shared_memory(region.name, size, offset=4 * element)
            wanted.append(output)
        return [*wanted, self.module.InferRequestedOutput("SHARED")]

    def ask(self, how, source, target, client=None):
        """Send the input at one range and request the output at another; tells if the process has mapped that one."""
        answer = (client or self.client).infer(
            "plus", self.inputs(*source), outputs=self.outputs(("OUTPUT", *target, SIZE)), request_id=how
        )
        output = answer.get_output("OUTPUT")
        datatype, shape = (output["datatype"], output["shape"]) if isinstance(output, dict) else (output.datatype, output.shape)
        assert (datatype, list(shape)) == ("FP32", [N])
        return answer.as_numpy("SHARED")[0] > 0

    def plain(self):
        """Whether the process has mapped regions for outputs, asked without using any."""
        given = self.module.InferInput("INPUT", [2], "FP32")
        given.set_data_from_numpy(COUNTED[:2])
        return self.client.infer("plus", [given]).as_numpy("SHARED")[0] > 0

    def written(self):
        """Wait until the process writes outputs itself."""
        until(lambda: self.ask("", (self.source, 0), (self.target, 0)))

    def held(self, change):
        """Change something while a request is in the model; returns its error, or None."""
        errors, name = [], f"{self.source.name}-{len(os.listdir(MARKS))}"

        def ask():
            client = self.module.InferenceServerClient(self.address)
            try:
                self.ask("hold:" + mark(name), (self.source, 0), (self.target, N), client=client)
                errors.append(None)
            except Exception as error:  # a client that gives up raises its own errors
                errors.append(error)
            client.close()

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: os.path.exists(mark(name + ".begun")))
        change()
        open(mark(name + ".over"), "w").close()
        asking.join()
        return errors[0]


def mark(name):
    return os.path.join(MARKS, name)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def life(c):
    source, target = c.source, c.target
    source.register()
    target.register()
    source.at(0)[:] = COUNTED
    c.ask("", (source, 0), (target, 0))
    assert (target.at(0) == COUNTED).all() and (target.all[N:] == -1).all()
    c.written()
    for how, want in (("", COUNTED), ("plus", COUNTED + 1), ("write", COUNTED * 0 + 7), ("bls", COUNTED + 1), ("as it came", COUNTED)):
        target.all[:] = -1
        assert c.ask(how, (source, 0), (target, 5)), how
        assert (target.at(5) == want).all() and (target.all[:5] == -1).all() and (target.all[N + 5 :] == -1).all(), how
        assert (source.at(0) == COUNTED).all(), how
    ranges(c)
    refusals(c)
    # Unregistered during a request.
    target.all[:] = -1

    def unregister():
        target.unregister()
        source.unregister()

    assert c.held(unregister) is None
    assert (target.at(N) == COUNTED).all()
    until(lambda: not c.plain())
    source.register()
    target.register()
    c.written()
    gives_up(c)
    # Truncated during a request: that request fails. If the process has written there before, it is lost, and
    # from then on the server writes outputs.
    truncated = f"shared memory region '{target.name}' has been truncated by its owner"
    for before in (False, True):
        if before:
            assert c.ask("", (source, 0), (target, N))
        error = c.held(lambda: os.truncate(target.path, 4096))
        assert isinstance(error, InferenceServerException) and error.message().endswith(truncated), error
        os.truncate(target.path, ROOM)
    for _ in range(3):
        target.all[:] = -1
        assert not c.ask("plus", (source, 0), (target, 0))
        assert (target.at(0) == COUNTED + 1).all()
    # A file that others may write to is also left to the server.
    target.unregister()
    os.chmod(target.path, 0o622)
    target.register()
    for _ in range(3):
        assert not c.ask("", (source, 0), (target, 0))
    assert (target.at(0) == COUNTED).all()
    source.unregister()
    target.unregister()


def ranges(c):
    """Inputs and outputs in one region: side by side, overlapping, and at the same place."""
    source, target = c.source, c.target
    until(lambda: c.ask("", (source, 0), (source, 2 * N)))
    assert (source.at(2 * N) == COUNTED).all()
    for how, plus in (("", 0), ("plus", 1)):
        for by in (0, 1, 1024, N - 1, N):
            source.at(by)[:] = -1
            source.at(0)[:] = COUNTED
            c.ask(how, (source, 0), (source, by))
            assert (source.at(by) == COUNTED + plus).all(), (how, by)
            assert (source.all[:by] == COUNTED[:by]).all(), (how, by)
    source.at(0)[:] = COUNTED
    # Two outputs of one region, one at the place of the other one's input.
    for first, second in ((0, N), (N, 0), (2 * N, 0)):
        target.all[:] = -1
        wanted = c.outputs(("OUTPUT", target, first, SIZE), ("DOUBLE", target, second, SIZE))
        c.client.infer("plus", c.inputs(source, 0), outputs=wanted)
        assert (target.at(first) == COUNTED).all() and (target.at(second) == 2 * COUNTED).all()
        target.at(0)[:] = COUNTED
        wanted = c.outputs(("DOUBLE", target, 0, SIZE), ("OUTPUT", target, second + N, SIZE))
        c.client.infer("plus", c.inputs(target, 0), outputs=wanted)
        assert (target.at(0) == 2 * COUNTED).all() and (target.at(second + N) == COUNTED).all()


def refusals(c):
    source, target = c.source, c.target
    for size in (SIZE - 1, 65536):
        target.all[:] = -1
        try:
            c.client.infer("plus", c.inputs(source, 0), outputs=c.outputs(("OUTPUT", target, 0, size)))
        except InferenceServerException as error:
            want = f"shared memory size specified with the request for output 'OUTPUT' ({size} bytes) should be at least {SIZE} bytes to hold the results"
            assert error.message() == want, error
        else:
            raise AssertionError("an output that is too large was taken")
        assert (target.all == -1).all()
    # Empty tensors and strings, which the server writes.
    given = c.module.InferInput("INPUT", [0], "FP32")
    given.set_data_from_numpy(COUNTED[:0])
    c.client.infer("plus", [given], outputs=c.outputs(("OUTPUT", target, 0, SIZE)))
    assert (target.all == -1).all()
    given = c.module.InferInput("INPUT", [20_000], "BYTES")
    given.set_data_from_numpy(np.array([b"%05d" % i for i in range(20_000)], np.object_))
    output = c.module.InferRequestedOutput("OUTPUT")
    output.set_shared_memory(target.name, 9 * 20_000)
    c.client.infer("texts", [given], outputs=[output])
    assert shm.get_contents_as_numpy(target.handle, np.object_, [20_000])[19_999] == b"19999"


def gives_up(c):
    """Outputs for a client that has gone are not written."""
    target = c.target
    target.all[:] = -1
    if c.module is http:
        # A separate client: it closes the connection while the request is in the model.
        name = "gone"
        client = http.InferenceServerClient(HTTP, network_timeout=0.5)
        try:
            c.ask("hold:" + mark(name), (c.source, 0), (target, N), client=client)
        except Exception:
            pass
        else:
            raise AssertionError("the request was answered")
        client.close()
        until(lambda: os.path.exists(mark(name + ".cancelled")))
        open(mark(name + ".over"), "w").close()
    else:
        name = "left"
        wanted = c.outputs(("OUTPUT", target, N, SIZE))
        answers = []
        context = c.client.async_infer(
            "plus", c.inputs(c.source, 0), lambda result, error: answers.append(error), outputs=wanted, request_id="hold:" + mark(name)
        )
        until(lambda: os.path.exists(mark(name + ".begun")))
        context.cancel()
        until(lambda: os.path.exists(mark(name + ".cancelled")))
        open(mark(name + ".over"), "w").close()
        until(lambda: answers)
        assert answers[0] is not None
    c.plain()  # it waits for the one instance
    assert (target.all == -1).all()


async def asynchronous(module, address, name):
    """Both asyncio clients, with several requests at once."""
    async with module.InferenceServerClient(address) as client:
        own = Client(http, HTTP, name)
        source, target = own.source, own.target
        source.register()
        target.register()
        source.at(0)[:] = COUNTED
        own.written()

        async def ask(i):
            given = module.InferInput("INPUT", [N], "FP32")
            given.set_shared_memory(source.name, SIZE)
            output = module.InferRequestedOutput("OUTPUT")
            output.set_shared_memory(target.name, SIZE, offset=i * SIZE)
            await client.infer("plus", [given], outputs=[output], request_id="plus" if i % 2 else "")
            assert (target.at(i * N) == COUNTED + i % 2).all()

        for _ in range(3):
            target.all[:] = -1
            await asyncio.gather(*(ask(i) for i in range(4)))
        finish(own)


def finish(c):
    for region in (c.source, c.target):
        region.unregister()
        del region.all
        shm.destroy_shared_memory_region(region.handle)


for each in (Client(http, HTTP, "http"), Client(grpc, GRPC, "grpc")):
    life(each)
    finish(each)
for module, address, name in ((http_aio, HTTP, "http-aio"), (grpc_aio, GRPC, "grpc-aio")):
    asyncio.run(asynchronous(module, address, name))
