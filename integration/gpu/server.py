"""Tests bin/nereid on a machine with a CUDA device: `python3 integration/gpu/server.py [BINARY]`.

Needs only numpy, and uses torch if it is installed. Checks the number of devices, the placement of instances, GPU
metrics, and the behavior without devices and without the helper. The exit status is 1 if a check fails. Without a
device it prints a sentence and exits with 0.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "gpu"))

from ports import Port  # noqa: E402  # only now found

LIMIT = 120  # seconds, for every wait

MODEL = '''
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

try:
    import torch
except ImportError:
    torch = None


class TritonPythonModel:
    def initialize(self, args):
        self.told = {k[len("model_instance_"):]: args[k] for k in args if k.startswith("model_instance_")}
        self.told["pid"] = os.getpid()
        self.device = None
        if torch is not None and self.told["kind"] == "GPU" and torch.cuda.is_available():
            self.device = torch.device("cuda:" + self.told["device_id"])
            self.told["torch"] = torch.cuda.get_device_name(self.device)

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if self.device is not None:
                on = torch.from_numpy(np.array(x)).to(self.device)
                y = (on * 2).cpu().numpy()
                if x[0] < 0:  # work for a while, to be seen in the metrics
                    a = torch.rand(4096, 4096, device=self.device)
                    for _ in range(int(-x[0])):
                        a = (a @ a).clamp(0, 1)
                    torch.cuda.synchronize(self.device)
            else:
                y = x * 2
            told = np.array([json.dumps(self.told)], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y), pb_utils.Tensor("TOLD", told)]))
        return responses
'''

CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

GROUPS = {
    "plain": "",
    "two": "instance_group [ { kind: KIND_GPU gpus: [ 0 ] count: 2 } ]",
    "host": "instance_group [ { kind: KIND_CPU } ]",
    "whole": "instance_group [ { kind: KIND_MODEL } ]",
    "beyond": "instance_group [ { kind: KIND_GPU gpus: [ 99 ] } ]",
}

failed = []


def check(what, ok, found=""):
    print("%s  %s%s" % ("ok  " if ok else "FAIL", what, ": %s" % (found,) if found != "" else ""), flush=True)
    if not ok:
        failed.append(what)


def count(environment):
    """Query the device helper directly, like the server."""
    line = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "stub" / "nereid_devices")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, timeout=LIMIT, check=True,
    ).stdout
    return json.loads(line)


class Server:
    """A server for the models, with environment variables and flags."""

    def __init__(self, binary, repository, flags=(), **variables):
        self.ports = [Port() for _ in range(3)]
        self.http, grpc, self.metrics = (port.number for port in self.ports)
        self.log = ""
        began = time.monotonic()
        self.process = subprocess.Popen(
            [
                binary, "--model-repository=" + repository, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
                "--http-port=%d" % self.http, "--grpc-port=%d" % grpc, "--metrics-port=%d" % self.metrics,
                "--exit-on-error=false", "--strict-readiness=false", "--metrics-interval-ms=0",
                "--backend-config=python,python-executable=" + sys.executable, *flags,
            ],
            env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.until("ready", lambda: self.get(self.http, "/v2/health/ready") is not None)
        self.took = time.monotonic() - began

    def _read(self):
        for line in self.process.stdout:
            self.log += line

    def until(self, what, condition):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        check("the server is " + what, False, "it is not within %d s; it printed:\n%s" % (LIMIT, self.log))
        return None

    def get(self, port, path):
        with contextlib.suppress(OSError, urllib.error.URLError):
            return urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=LIMIT).read().decode()
        return None

    def page(self):
        return self.get(self.metrics, "/metrics") or ""

    def ask(self, model, x):
        body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [x]}]}).encode()
        with urllib.request.urlopen("http://127.0.0.1:%d/v2/models/%s/infer" % (self.http, model), body, LIMIT) as reply:
            outputs = {o["name"]: o["data"][0] for o in json.load(reply)["outputs"]}
        return outputs["Y"], json.loads(outputs["TOLD"])

    def processes(self, word):
        """The server's processes with a word in their command line."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and word in (stat.parent / "cmdline").read_text():
                    found.append(int(stat.parent.name))
        return found

    def end(self):
        children = self.processes("")
        self.process.send_signal(signal.SIGTERM)
        check("the server ends", self.process.wait(LIMIT) == 0, self.process.returncode)
        self.reader.join()
        for port in self.ports:
            port.close()
        check("nothing of it is left", not [p for p in children if os.path.exists("/proc/%d" % p)])


def samples(page, family):
    return {u: float(v) for u, v in re.findall(r'(?m)^%s\{gpu_uuid="([^"]+)"\} (\S+)$' % family, page)}


FAMILIES = (
    "nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes", "nv_gpu_power_usage", "nv_gpu_power_limit",
    "nv_energy_consumption",
)


def placed(binary, repository, devices):
    """Device count, placement and metrics with all devices."""
    server = Server(binary, repository)
    print("ready after %.2f s" % server.took)
    for line in server.log.splitlines():
        if re.search(r"CUDA device|Collecting|ModelInstanceInitialize|cuda_memory_pool|compute_capability|beyond_0", line):
            print("     | " + line)
    numbers = [d["number"] for d in devices]
    config = json.loads(server.get(server.http, "/v2/models/plain/config"))["instance_group"][0]
    check("a model without groups is on all GPUs", (config["kind"], config["gpus"]) == ("KIND_GPU", numbers), config)
    for model, kind in (("plain", "GPU"), ("two", "GPU"), ("host", "CPU"), ("whole", "MODEL")):
        y, told = server.ask(model, 21)
        check("%s answers on %s" % (model, kind), y == 42 and told["kind"] == kind, told)
    check("gpu 99 is refused", "specifies invalid or unsupported gpu id 99" in server.log)

    page = server.until("measuring", lambda: (p := server.page()) and samples(p, FAMILIES[0]) and p)
    uuids = {d["uuid"] for d in devices}
    for family in FAMILIES:
        found = samples(page, family)
        check(family, set(found) == uuids, found)
    began = time.monotonic()
    for _ in range(10):
        server.page()
    print("one page with a sample takes %.1f ms" % ((time.monotonic() - began) * 100))
    for line in subprocess.getoutput(
        "nvidia-smi --query-gpu=uuid,utilization.gpu,memory.used,memory.total,power.draw,power.limit --format=csv"
    ).splitlines():
        print("     nvidia-smi | " + line)
    helper = server.processes("nereid_devices")
    check("there is one device helper", len(helper) == 1, helper)
    resident = re.search(r"VmRSS:\s+(\d+)", Path("/proc/%d/status" % helper[0]).read_text()).group(1)
    print("the helper has %.1f MiB resident" % (int(resident) / 1024))

    uuid = devices[0]["uuid"]
    before = samples(server.page(), "nv_energy_consumption")[uuid]
    work = threading.Thread(target=server.ask, args=("plain", -3000))
    work.start()
    most = 0.0
    while work.is_alive():
        most = max(most, samples(server.page(), "nv_gpu_utilization").get(uuid, 0))
        time.sleep(0.05)
    after = samples(server.page(), "nv_energy_consumption")[uuid]
    _, told = server.ask("plain", 1)
    check("work is seen, if torch does any", most > 0 or "torch" not in told, "utilization up to %s, %.1f J" % (most, after - before))
    labelled = re.findall(r'(?m)^nv_inference_exec_count\{gpu_uuid="([^"]+)",model="plain",version="1"\} (\d+)$', page)
    check("executions are counted for their GPU", {u for u, _ in labelled} == uuids, labelled)

    os.kill(helper[0], signal.SIGKILL)
    server.until("without metrics", lambda: "there are no GPU metrics until" in server.log)
    server.until("measuring again", lambda: set(samples(server.page(), FAMILIES[0])) == uuids)
    check("energy goes on", samples(server.page(), "nv_energy_consumption")[uuid] >= after)
    server.end()


def hidden(binary, repository, devices):
    """Devices hidden by CUDA_VISIBLE_DEVICES and by the minimum."""
    server = Server(binary, repository, CUDA_VISIBLE_DEVICES="")
    print("ready after %.2f s without devices" % server.took)
    y, told = server.ask("plain", 21)
    check("without visible devices a model is on the CPU", y == 42 and told["kind"] == "CPU", told)
    check("KIND_GPU is refused", "instance group two_0 of model two specifies invalid or unsupported gpu id 0" in server.log)
    check("there are no GPU metrics", "nv_gpu_" not in server.page())
    check("no device helper stays", not server.processes("nereid_devices"))
    server.end()

    last = devices[-1]
    server = Server(binary, repository, CUDA_VISIBLE_DEVICES=last["uuid"])
    y, told = server.ask("plain", 21)
    check("the device of a UUID is number 0", y == 42 and (told["kind"], told["device_id"]) == ("GPU", "0"), told)
    server.until("measuring", lambda: set(samples(server.page(), FAMILIES[0])) == {last["uuid"]})
    server.end()

    server = Server(binary, repository, ["--min-supported-compute-capability=99", "--allow-gpu-metrics=false"])
    _, told = server.ask("plain", 21)
    check("a device below the minimum is not used", told["kind"] == "CPU", told)
    check("the log says why", "below --min-supported-compute-capability" in server.log)
    check("GPU metrics can be left out", "nv_gpu_" not in server.page())
    server.end()


def main():
    binary = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    if not os.access(binary, os.X_OK):
        print("there is no program %s: make it by `make build`, here or on another machine" % binary)
        return 1
    began = time.monotonic()
    reply = count(os.environ)
    devices = reply["devices"]
    if not devices:
        print("skipped: there is no CUDA device here (%s)" % reply.get("error", "the driver shows none"))
        return 0
    print("counted in %.2f s: %s" % (time.monotonic() - began, json.dumps(devices)))
    with tempfile.TemporaryDirectory() as repository:
        for name, groups in GROUPS.items():
            folder = Path(repository, name, "1")
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(MODEL)
            (folder.parent / "config.pbtxt").write_text(CONFIG + groups)
        placed(binary, repository, devices)
        hidden(binary, repository, devices)
    print("%d checks failed: %s" % (len(failed), ", ".join(failed)) if failed else "all checks hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
