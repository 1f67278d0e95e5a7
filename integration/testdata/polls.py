"""Changes a polled repository while clients send requests: polls.py <http host:port> <gRPC host:port> <root>.

The repository is "models" below the root. Each model returns the number in its source, and records each load in the
file "loads". Exits with a traceback if a client gets a wrong answer.
"""

import os
import pathlib
import re
import shutil
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, ROOT = sys.argv[1:4]
MODELS = pathlib.Path(ROOT) / "models"
GONE = ("Request for unknown model: 'gone' is not found", "Request for unknown model: 'gone' has no available versions")


class Asker(threading.Thread):
    """Sends one request after the other. The answers may grow but never shrink."""

    def __init__(self, module, name, model, told="OUT", may_fail=()):
        super().__init__(daemon=True)
        self.module, self.name, self.model, self.output, self.may_fail = module, name, model, told, may_fail
        self.last, self.problem, self.answers, self.over = 0, None, 0, False
        self.start()

    def run(self):
        try:
            client = (
                http.InferenceServerClient(HTTP, network_timeout=60)
                if self.module is http
                else grpc.InferenceServerClient(GRPC)
            )
            text = self.output == "TOLD"
            tensor = self.module.InferInput("NAME" if text else "IN", [1], "BYTES" if text else "INT64")
            tensor.set_data_from_numpy(np.array([b"m"], np.object_) if text else np.zeros(1, np.int64))
            while not self.over:
                try:
                    told = int(client.infer(self.model, [tensor]).as_numpy(self.output)[0])
                except InferenceServerException as error:
                    if error.message() not in self.may_fail:
                        raise
                    told = self.last = 0
                assert told >= self.last, f"{told} was answered after {self.last}"
                self.last = told
                self.answers += 1
        except Exception as error:
            self.problem = error

    def check(self):
        assert self.problem is None, f"{self.name}: {self.problem!r} after {self.answers} answers, the last {self.last}"


ASKERS = [
    Asker(module, f"{module.__name__} {name}", model, **more)
    for module in (http, grpc)
    for name, model, more in (
        ("of m", "m", {}),
        ("of m, too", "m", {}),
        ("of an ensemble of m", "e", {}),
        ("of a model that calls m", "asks", {"told": "TOLD"}),
        ("of a model that does not change", "steady", {}),
        ("of a model that is removed", "gone", {"may_fail": GONE}),
    )
]


def until(what, ok):
    deadline = time.monotonic() + 120
    while not ok():
        assert time.monotonic() < deadline, f"{what}: {[(a.name, a.last) for a in ASKERS]}, loads {loads()}"
        for a in ASKERS:
            a.check()
        time.sleep(0.01)


def all_told(value, *models):
    """Waits until each client of the models has received the value."""
    until(f"{value} of {models}", lambda: all(a.last == value for a in ASKERS if a.model in models))


def loads(name=""):
    noted = pathlib.Path(ROOT, "loads").read_text().split()
    return [line for line in noted if line.startswith(name)]


def source(value):
    was = (MODELS / "steady" / "1" / "model.py").read_text()
    return re.sub("^VALUE = .*$", f"VALUE = {value}", was, flags=re.M)


def replace(name, version, value):
    """Replaces a source at once."""
    fresh = pathlib.Path(ROOT) / "fresh"
    fresh.write_text(source(value))
    os.replace(fresh, MODELS / name / version / "model.py")


def bring(name, version, value):
    """Adds a version, or a model with it, at once."""
    made = pathlib.Path(ROOT) / "made"
    shutil.copytree(MODELS / "steady", made, ignore=shutil.ignore_patterns("__pycache__"))
    (made / "1" / "model.py").write_text(source(value))
    if (MODELS / name).exists():
        os.replace(made / "1", MODELS / name / version)
        shutil.rmtree(made)
    else:
        os.replace(made / "1", made / version)
        os.replace(made, MODELS / name)


def remove(directory):
    """Removes a directory at once."""
    away = pathlib.Path(ROOT) / "away"
    os.replace(directory, away)
    shutil.rmtree(away)


def clock(value):
    """Waits until the server has polled the repository twice since this change."""
    for n in (value, value + 1):
        replace("clock", "1", n)
        until("the clock", lambda n=n: loads("clock")[-1] == f"clock.1={n}")


until("answers", lambda: all(a.answers > 0 for a in ASKERS))
all_told(1, "m", "e", "asks", "steady", "gone")

# A new version replaces the old one, because the policy serves the latest.
bring("m", "2", 20)
all_told(20, "m", "e", "asks")

# Its source changes.
replace("m", "2", 30)
all_told(30, "m", "e", "asks")

# Files of Python and editors are not a change, neither when they appear nor when they disappear.
PLACES = (MODELS / "m", MODELS / "m" / "2", MODELS / "steady", MODELS / "steady" / "1")
for place in PLACES:
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "model.cpython-38.pyc").write_bytes(b"compiled")
    for left in (".model.py.swp", ".model.py.swx", "model.py~", "#model.py#"):
        (place / left).write_text("what an editor leaves")
    (place / "4913").write_text("")  # Vim, to see whether it can write
    (place / ".#model.py").symlink_to("somebody@somewhere.1234")  # Emacs
before = loads("m."), loads("steady")
clock(10)
for place in PLACES:
    shutil.rmtree(place / "__pycache__")
    for left in (".model.py.swp", ".model.py.swx", "model.py~", "#model.py#", "4913", ".#model.py"):
        (place / left).unlink()
clock(20)
assert (loads("m."), loads("steady")) == before, (before, loads())

# A model is removed, and another comes.
remove(MODELS / "gone")
all_told(0, "gone")
bring("fresh", "1", 5)
until("fresh is loaded", lambda: loads("fresh") == ["fresh.1=5"])
bring("gone", "4", 40)
all_told(40, "gone")

# A version that cannot be loaded changes nothing until it can.
bring("m", "3", -1)
until("it is tried", lambda: "m.3=-1" in loads())
clock(30)
all_told(30, "m", "e", "asks")
replace("m", "3", 50)
all_told(50, "m", "e", "asks")

# Versions that do not serve are removed.
remove(MODELS / "m" / "1")
remove(MODELS / "m" / "2")
clock(40)
for a in ASKERS:
    a.over = True
for a in ASKERS:
    a.join(60)
    a.check()
# The source of version 3 may have changed after a poll and before the server's next attempt. Then that attempt loads
# the new source, and the next poll loads it again, because its files differ from those of the earlier poll.
good = [line for line in loads("m.") if line != "m.3=-1"]
assert good in (["m.1=1", "m.2=20", "m.2=30", "m.3=50"], ["m.1=1", "m.2=20", "m.2=30", "m.3=50", "m.3=50"]), loads()
assert loads("steady") == ["steady.1=1"], loads()
print({a.name: a.answers for a in ASKERS})
