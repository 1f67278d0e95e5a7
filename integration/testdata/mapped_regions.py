"""Sends large inputs in shared memory, which the model's process maps itself.

mapped_regions.py <http host:port> <gRPC host:port> <prefix of keys> <folder of marks> [leave]
"""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

HTTP, GRPC, PREFIX, MARKS = sys.argv[1:5]
SIZE = 4 << 20
ONES = np.ones(SIZE // 4, np.float32)


class Client:
    """One kind of client, with its own region."""

    def __init__(self, module, address, name):
        self.module, self.address, self.name = module, address, name
        self.client = module.InferenceServerClient(address)
        self.path = "/dev/shm/" + PREFIX + name
        self.handle = shm.create_shared_memory_region(name, PREFIX + name, SIZE)
        self.put(1)

    def put(self, value):
        shm.set_shared_memory_region(self.handle, [ONES * value])

    def register(self):
        self.client.register_system_shared_memory(self.name, PREFIX + self.name, SIZE)

    def unregister(self):
        self.client.unregister_system_shared_memory(self.name)

    def ask(self, how="", offset=0, client=None):
        """The sum of the region from an offset, and whether the model's process has mapped it."""
        given = self.module.InferInput("INPUT", [(SIZE - offset) // 4], "FP32")
        given.set_shared_memory(self.name, SIZE - offset, offset=offset)
        total, mapped = (client or self.client).infer("sums", [given], request_id=how).as_numpy("OUTPUT")
        return int(total), mapped > 0

    def plain(self):
        """Whether the model's process has mapped the region, asked without using it."""
        given = self.module.InferInput("INPUT", [2], "FP32")
        given.set_data_from_numpy(ONES[:2])
        return self.client.infer("sums", [given], request_id=self.path).as_numpy("OUTPUT")[1] > 0

    def mapped(self):
        """Wait until the region is mapped."""
        until(lambda: self.ask()[1])

    def held(self, change):
        """Change something while a request is in the model; returns the response or its error."""
        answers = []
        name = f"{self.name}-{len(os.listdir(MARKS))}"

        def ask():
            client = self.module.InferenceServerClient(self.address)
            try:
                answers.append(self.ask("hold:" + mark(name), client=client))
            except InferenceServerException as error:
                answers.append(error.message())
            client.close()

        asking = threading.Thread(target=ask)
        asking.start()
        while not os.path.exists(mark(name + ".begun")):
            time.sleep(0.005)
        change()
        with open(mark(name + ".over"), "w"):
            pass
        asking.join()
        return answers[0]


def mark(name):
    return os.path.join(MARKS, name)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def life(c):
    n = ONES.size
    c.register()
    assert c.ask()[0] == n
    c.mapped()
    c.put(2)
    assert c.ask() == (2 * n, True)
    assert c.ask(offset=4096 + 4)[0] == 2 * (n - 1025)
    # The model's writes are private.
    assert c.ask("write")[0] == 7 * n
    assert (shm.get_contents_as_numpy(c.handle, np.float32, [n]) == 2).all()
    assert c.ask()[0] == 2 * n
    # Inputs that the model keeps stay unchanged when the client continues.
    assert c.ask("keep")[0] == 2 * n
    c.put(3)
    assert c.ask("kept")[0] == 2 * n and c.ask()[0] == 3 * n
    c.ask("drop")
    # Unregistered during a request.
    assert c.held(c.unregister)[0] == 3 * n
    until(lambda: not c.plain())
    # Truncated during a request: that request fails, later ones are copied.
    c.register()
    c.mapped()
    truncated = f"shared memory region '{c.name}' has been truncated by its owner"
    got = c.held(lambda: os.truncate(c.path, 4096))
    assert isinstance(got, str) and got.endswith(truncated), got
    try:
        c.ask()
    except InferenceServerException as error:
        assert error.message().endswith(truncated), error
    else:
        raise AssertionError("no error of a region that is too short")
    os.truncate(c.path, SIZE)
    c.put(4)
    for _ in range(3):
        assert c.ask() == (4 * n, False)
    # After another registration it is mapped again.
    c.unregister()
    c.register()
    c.mapped()
    assert c.ask()[0] == 4 * n
    # A file that others may write into is copied.
    c.unregister()
    until(lambda: not c.plain())
    os.chmod(c.path, 0o622)
    c.register()
    for _ in range(3):
        assert c.ask() == (4 * n, False)
    c.unregister()


def leave():
    c = Client(http, HTTP, "left")
    c.register()
    c.mapped()
    c.ask("hold:" + mark("leave"))


def clients_that_leave(c):
    child = subprocess.Popen([sys.executable, *sys.argv, "leave"])
    while not os.path.exists(mark("leave.begun")):
        assert child.poll() is None, "the client has ended by itself"
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with open(mark("leave.over"), "w"):
        pass
    c.register()
    assert c.ask()[0] == 4 * ONES.size
    c.unregister()
    c.client.unregister_system_shared_memory("left")
    if os.path.exists("/dev/shm/" + PREFIX + "left"):  # its resource tracker may have removed it
        os.remove("/dev/shm/" + PREFIX + "left")


if sys.argv[5:] == ["leave"]:
    leave()
else:
    clients = [Client(http, HTTP, "http"), Client(grpc, GRPC, "grpc")]
    for each in clients:
        life(each)
        clients_that_leave(each)
        for name in os.listdir(MARKS):
            os.remove(mark(name))
    for each in clients:
        shm.destroy_shared_memory_region(each.handle)
