"""Uses tensors in device memory registered as CUDA shared memory.

cuda_regions.py <http host:port> <gRPC host:port> <model> <folder of marks> <folders of packages, by colons> [<what>]
"""

import base64
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

HTTP, GRPC, MODEL, MARKS, FOLDERS = sys.argv[1:6]
sys.path += FOLDERS.split(":")

import numpy as np  # noqa: E402
import tritonclient.grpc as grpc  # noqa: E402
import tritonclient.http as http  # noqa: E402
from producer import Context, OnDevice, check, driver, place  # noqa: E402
from tritonclient.utils import InferenceServerException, deserialize_bytes_tensor, serialize_byte_tensor  # noqa: E402

N = 100_000
SIZE = 4 * N
NUMBERS = np.arange(N, dtype=np.float32)
#: The driver's error for handles that it cannot open. A real driver has several.
INVALID = "" if os.environ.get("NEREID_TEST_DEVICE") == "real" else "invalid argument"


class Region:
    """An allocation on a device."""

    def __init__(self, array, device=0):
        device = place(device)
        self.memory = OnDevice(array, device)
        self.size, self.device = array.nbytes, device
        handle = (ctypes.c_ubyte * 64)()
        with Context(device):
            check(driver().cuIpcGetMemHandle(handle, ctypes.c_uint64(self.memory.address)))
        self.handle = base64.b64encode(bytes(handle))

    def read(self, n=None):
        raw = bytearray(self.size if n is None else n)
        with Context(self.device):
            address = ctypes.addressof((ctypes.c_char * len(raw)).from_buffer(raw))
            check(driver().cuMemcpyDtoH_v2(address, self.memory.address, len(raw)))
        return bytes(raw)

    def numbers(self):
        return np.frombuffer(self.read(), np.float32)


class Client:
    def __init__(self, module, address):
        self.module, self.address = module, address
        self.client = module.InferenceServerClient(address)

    def register(self, name, region, device=None, size=None, handle=None):
        self.client.register_cuda_shared_memory(
            name,
            (handle or region.handle).decode() if self.module is http else handle or region.handle,
            region.device if device is None else device,
            region.size if size is None else size,
        )

    def unregister(self, name=""):
        self.client.unregister_cuda_shared_memory(name)

    def status(self):
        """Name, device and size of each region."""
        if self.module is http:
            listed = self.client.get_cuda_shared_memory_status()
            return sorted((one["name"], one["device_id"], one["byte_size"]) for one in listed)
        listed = self.client.get_cuda_shared_memory_status().regions
        return sorted((name, one.device_id, one.byte_size) for name, one in listed.items() if name == one.name)

    def ask(self, source, to=None, model=None, n=N, how="", room=None, kind="FP32", offset=0):
        """Send an input in a region, with the output in one if it is named."""
        size = n * 4 if kind == "FP32" else room
        given = self.module.InferInput("IN", [n], kind)
        given.set_shared_memory(source, size, offset=offset)
        wanted = self.module.InferRequestedOutput("OUT")
        if to:
            wanted.set_shared_memory(to, size if room is None else room)
        answer = self.client.infer(model or MODEL, [given], outputs=[wanted], request_id=how)
        return None if to else answer.as_numpy("OUT")

    def refused(self, want, function, *args, **kwargs):
        try:
            function(*args, **kwargs)
        except InferenceServerException as error:
            assert want in error.message(), error
        else:
            raise AssertionError(f"no error, want {want}")

    def held(self, change, *args, **kwargs):
        """Change something while a request is in the model; returns the response."""
        answers, name = [], os.path.join(MARKS, f"{self.module.__name__}-{len(os.listdir(MARKS))}")
        other = Client(self.module, self.address)
        asking = threading.Thread(target=lambda: answers.append(other.ask(*args, how=name, **kwargs)))
        asking.start()
        until(lambda: os.path.exists(name + ".begun"))
        change()
        open(name + ".over", "w").close()
        asking.join()
        return answers


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def story(c):
    source, target = Region(NUMBERS), Region(np.zeros(N, np.float32), 1)
    assert c.status() == []
    c.register("in", source)
    c.register("out", target)
    assert c.status() == [("in", 0, SIZE), ("out", place(1), SIZE)]
    c.refused("shared memory region 'in' already in manager", c.register, "in", source)
    # Both directions, and one.
    c.ask("in", "out")
    assert (target.numbers() == NUMBERS * 2).all()
    assert (c.ask("in") == NUMBERS * 2).all()
    assert (c.ask("in", n=5, offset=400) == NUMBERS[100:105] * 2).all()
    # The client changes its memory between requests.
    source.memory.write(NUMBERS + 1)
    assert (c.ask("in") == NUMBERS * 2 + 2).all()
    # Inputs that the model keeps without reading them stay valid.
    c.ask("in", how="keep")
    source.memory.write(NUMBERS)
    assert (c.ask("in", how="kept") == NUMBERS * 2 + 2).all()
    source.memory.write(NUMBERS + 1)
    # A shorter output leaves the rest unchanged, a longer one is rejected.
    c.ask("in", "out", n=2)
    assert (target.numbers()[:4] == [2, 4, 4, 6]).all(), target.numbers()[:4]
    c.refused(
        "shared memory size specified with the request for output 'OUT' (39 bytes) should be at least 40 bytes to hold the results",
        c.ask, "in", "out", n=10, room=39,
    )  # fmt: skip
    c.refused("Invalid offset + byte size for shared memory region: 'in'", c.ask, "in", n=N, offset=4)
    c.refused("Unable to find shared memory region: 'none'", c.ask, "none")
    # Invalid registrations.
    failed = "failed to register CUDA shared memory region 'r': "
    c.refused(failed + "failed to open CUDA IPC handle: " + INVALID, c.register, "r", source, handle=base64.b64encode(bytes(64)))
    if place(1) == 1:
        c.refused(failed + "failed to open CUDA IPC handle: the memory lies on device 0, not on device 1", c.register, "r", source, device=1)
    for number in (1 << 10, 1 << 32):
        c.refused(failed + "failed to open CUDA IPC handle: invalid device ordinal", c.register, "r", source, device=number)
    c.refused("failed to register shared memory region 'r': invalid args", c.register, "r", source, size=1 << 40)
    freed = Region(NUMBERS)
    freed.memory.free()
    c.refused(failed + "failed to open CUDA IPC handle: " + INVALID, c.register, "r", freed)
    # BYTES.
    texts = np.array([b"a", b"", b"longer"], object)
    packed = serialize_byte_tensor(texts).item()
    strings, back = Region(np.frombuffer(packed, np.uint8)), Region(np.zeros(len(packed), np.uint8))
    c.register("strings", strings)
    c.register("back", back)
    c.ask("strings", "back", "texts", n=3, kind="BYTES", room=len(packed))
    assert list(deserialize_bytes_tensor(back.read())) == list(texts)
    # Unregistered while a request uses both.
    target.memory.write(np.zeros(N, np.float32))
    c.held(c.unregister, "in", "out")
    assert (target.numbers() == NUMBERS * 2 + 2).all()
    c.refused("Unable to find shared memory region: 'in'", c.ask, "in")
    assert c.status() == []
    c.unregister("in")
    # The memory of a killed client stays as long as it is registered.
    leaving = subprocess.run([sys.executable, *sys.argv[:6], "leave:" + c.module.__name__], check=False)
    assert leaving.returncode == -signal.SIGKILL, leaving
    assert c.status() == [("left", 0, SIZE)]
    for _ in range(2):
        assert (c.ask("left", model="host") == NUMBERS * 2).all()
    if MODEL == "device":  # the model's process opens it too late
        c.refused("Failed to open the cudaIpcHandle. error: " + INVALID, c.ask, "left")
        c.refused("; the client that has registered this memory has ended, or freed it, before this instance", c.ask, "left")
    c.unregister("left")


def dies(c, helpers):
    """The copying processes die: registered memory is reopened if its client lives."""
    source = Region(NUMBERS)
    c.register("in", source)
    left = subprocess.run([sys.executable, *sys.argv[:6], "leave:" + c.module.__name__], check=False)
    assert left.returncode == -signal.SIGKILL, left
    assert (c.ask("left", model="host") == NUMBERS * 2).all()
    for helper in helpers:
        os.kill(helper, signal.SIGKILL)

    def answered():
        try:
            c.ask("in", "in", model="host")
            assert (source.numbers() == NUMBERS * 2).all()
            return True
        except InferenceServerException as error:
            assert "the device helper ended" in error.message(), error
            return False

    until(answered)
    c.refused("failed to copy data: failed to open CUDA IPC handle: " + INVALID, c.ask, "left", model="host")
    assert (c.ask("in", model="host") == NUMBERS * 4).all()
    c.unregister()


def stays(c):
    """Inputs and outputs in device memory that the host never reads."""
    source, targets = Region(NUMBERS), [Region(np.zeros(N, np.float32), device) for device in (0, 1)]
    c.register("in", source)
    for device, target in enumerate(targets):
        c.register(f"out{device}", target)
        for _ in range(5):
            c.ask("in", f"out{device}", how="same")
        assert (target.numbers() == NUMBERS).all()
    c.unregister()


def ended(c):
    """One client exits before the model's process has opened its memory, and one afterwards."""
    source = Region(NUMBERS)
    c.register("in", source)
    for how in ("leave:", "use:"):
        left = subprocess.run([sys.executable, *sys.argv[:6], how + c.module.__name__], check=False)
        assert left.returncode == -signal.SIGKILL, left
        for _ in range(2):
            c.ask("in", "left")
            # The copier has it open, so its content can be read.
            assert (c.ask("left", model="host") == NUMBERS * 4).all()
        c.unregister("left")
    c.unregister()


what = sys.argv[6] if len(sys.argv) > 6 else ""
for module, address in ((http, HTTP), (grpc, GRPC)):
    client = Client(module, address)
    if not what:
        story(client)
    elif what.startswith("dies:"):
        if module is grpc:
            dies(client, [int(helper) for helper in what[5:].split(",")])
    elif what in ("stays", "ended"):
        {"stays": stays, "ended": ended}[what](client)
    elif what in ("leave:" + module.__name__, "use:" + module.__name__):
        left = Region(NUMBERS)
        client.register("left", left)
        if what.startswith("use:"):
            client.ask("in", "left", how="same")
        os.kill(os.getpid(), signal.SIGKILL)
