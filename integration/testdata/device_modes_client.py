"""Sends the models of device_modes.py tensors in registered device memory.

The arguments are those of cuda_regions.py, and "import".
"""

import queue

import cuda_regions
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from cuda_regions import Client, Region
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

ROWS, COLUMNS = 2, 20_000
#: Called models.
KINDS = ("plain", "listed", "stacked", "states", "cached", "warmed", "ensemble", "shown", "thrice", "passes", "again")

NUMBERS = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


class Asker(Client):
    def infer(self, model, source=None, given=NUMBERS, outputs=(), shape=None, kind="FP32", size=None, **more):
        """Send an input in a region, or in the message. Outputs are names, or names with their destinations."""
        tensor = self.module.InferInput("IN", list(shape or given.shape), kind)
        if source is None:
            tensor.set_data_from_numpy(given)
        else:
            tensor.set_shared_memory(source, given.nbytes if size is None else size)
        wanted = []
        for name, how in dict(outputs).items():
            one = self.module.InferRequestedOutput(name, **how.get("options", {}))
            if "region" in how:
                one.set_shared_memory(how["region"], how["size"], how.get("offset", 0))
            wanted.append(one)
        if self.module is grpc and model.startswith(("thrice", "passes", "again")):
            return self.stream(model, tensor, wanted, **more)
        return self.client.infer(model, [tensor], outputs=wanted or None, **more)

    def stream(self, model, tensor, wanted, **more):
        """The last response of a stream: each overwrites the region of the previous one."""
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        self.client.async_stream_infer(model, [tensor], outputs=wanted or None, enable_empty_final_response=True, **more)
        last = None
        while True:
            result, error = answers.get(timeout=60)
            if error is not None:
                self.client.stop_stream()
                raise error
            if result.get_response().outputs:
                last = result
            if result.get_response().parameters["triton_final_response"].bool_param:
                self.client.stop_stream()
                return last

    def refused(self, want, model, **how):
        try:
            self.infer(model, **how)
        except InferenceServerException as error:
            assert want in error.message(), (model, how.get("outputs"), error.message())
        else:
            raise AssertionError(f"{model}: no error, want {want}")


def modes(c):
    """Each model with and without a region for its input and for its output."""
    for kind in KINDS:
        for takes in ("yes", "no"):
            mode(c, f"{kind}_{takes}")


def mode(c, model):
    kind, takes = model.rsplit("_", 1)
    if c.module is http and kind in ("thrice", "passes", "again"):
        return
    more = {"sequence_id": 77, "sequence_start": True, "sequence_end": True} if kind == "states" else {}
    factor, plus = (4, 0) if kind in ("ensemble", "shown") else (2, 0 if kind == "again" else 2 * (kind in ("thrice", "passes")))
    source, target = Region(NUMBERS, 1), Region(np.zeros_like(NUMBERS))
    c.register("in", source)
    c.register("out", target)
    into = {"OUT": {"region": "out", "size": NUMBERS.nbytes}, "WHERE": {}}
    for k in range(3):
        numbers = NUMBERS + k
        source.memory.write(numbers)
        want = numbers * factor + plus
        for region in ("in", None):
            # Decoupled models, and models that need their inputs on the host for another reason, have them there.
            inside = kind in ("plain", "listed", "warmed") and takes == "yes" and region == "in"
            if kind in ("ensemble", "shown"):
                inside = kind == "ensemble" and takes == "yes"  # of the next step
            shown = {"MID": {}} if kind == "shown" else {}
            for outputs in ({"OUT": {}, "WHERE": {}}, into):
                target.memory.write(np.zeros_like(NUMBERS))
                answer = c.infer(model, region, numbers, {**outputs, **shown}, **more)
                got = target.numbers().reshape(ROWS, COLUMNS) if outputs is into else answer.as_numpy("OUT")
                assert (got == want).all(), (model, region, got, want)
                where = answer.as_numpy("WHERE")
                assert kind in ("passes",) or (where == int(inside)).all(), (model, region, where)
    c.unregister()


def refusals(c):
    """Errors for invalid requests with device memory; the next request succeeds."""
    small, size = NUMBERS[:, :3].copy(), 24
    source, target, strings = Region(small, 1), Region(np.zeros(12, np.float32)), Region(np.frombuffer(b"\xff\xff\xff\x7fabc", np.uint8))
    for name, region in (("in", source), ("out", target), ("strings", strings)):
        c.register(name, region)
    out = {"region": "out", "size": size}
    for model in [f"{kind}_{takes}" for kind in KINDS if kind not in ("shown", "passes", "again") for takes in ("yes", "no")]:
        more = {"sequence_id": 78, "sequence_start": True, "sequence_end": True} if model.startswith("states") else {}
        if c.module is http and model.startswith("thrice"):
            continue
        ask = lambda want, **how: c.refused(want, model, **{"source": "in", "given": small, **more, **how})  # noqa: E731, B023
        ask("Unable to find shared memory region: 'none'", source="none")
        ask("Unable to find shared memory region: 'none'", outputs={"OUT": {"region": "none", "size": size}})
        ask(
            "shared memory size specified with the request for output 'OUT' (20 bytes) should be at least 24 bytes to hold the results",
            outputs={"OUT": {"region": "out", "size": 20}},
        )
        ask("Invalid offset + byte size for shared memory region: 'out'", outputs={"OUT": {"region": "out", "size": 49}})
        ask("Invalid offset + byte size for shared memory region: 'out'", outputs={"OUT": {"region": "out", "size": 24, "offset": 28}})
        ask("Invalid offset + byte size for shared memory region: 'in'", shape=(2, 7), size=56)
        ask("Expected 24, got 20", size=20)
        ask("inference input 'IN' data-type is 'INT32', but model ", kind="INT32")
        # Both in regions, with a JSON response.
        answer = c.infer(model, "in", small, {"OUT": out, "WHERE": {"options": {"binary_data": False} if c.module is http else {}}}, **more)
        assert (answer.as_numpy("WHERE") <= 1).all()
        want = small * (4 if model.startswith(("ensemble", "shown")) else 2) + 2 * model.startswith("thrice")
        assert (target.numbers()[:6].reshape(2, 3) == want).all(), (model, target.numbers(), want)
        target.memory.write(np.zeros(12, np.float32))
    for model in ("words_yes", "words_no"):
        cut = {"source": "strings", "given": small, "shape": (1,), "kind": "BYTES"}
        c.refused("incomplete string data for inference input 'IN', expecting string of length 2147483647 but only 3 bytes", model, size=7, **cut)
        c.refused("incomplete string length indicator for inference input 'IN' for model", model, size=3, **cut)
        texts = np.array([b"a", b"longer"], object)
        c.infer(model, None, texts, {"OUT": {"region": "out", "size": 15}}, kind="BYTES")
        assert target.read(15) == serialize_byte_tensor(texts).item()
        c.refused("(14 bytes) should be at least 15 bytes to hold the results", model, given=texts, outputs={"OUT": {"region": "out", "size": 14}}, kind="BYTES")
    c.unregister()


def classes(c):
    """Classification of an output on a device."""
    given = NUMBERS[:, :5].copy()
    source = Region(given, 1)
    c.register("in", source)
    batched = [[b"8.000000:4", b"6.000000:3"], [b"40008.000000:4", b"40006.000000:3"]]
    whole = [b"40008.000000:9", b"40006.000000:8"]
    wants = {"plain": whole, "listed": batched, "stacked": batched, "cached": whole, "ensemble": [b"80016.000000:9", b"80012.000000:8"]}
    for kind, want in wants.items():
        for takes in ("yes", "no"):
            for region in ("in", None):
                answer = c.infer(f"{kind}_{takes}", region, given, {"OUT": {"options": {"class_count": 2}}})
                got = answer.as_numpy("OUT").tolist()
                assert got == want, (kind, takes, region, got, want)
    c.unregister()


for module, address in ((http, cuda_regions.HTTP), (grpc, cuda_regions.GRPC)):
    asker = Asker(module, address)
    modes(asker)
    refusals(asker)
    classes(asker)
