"""The model.py of all models of device_modes_test.go. ACTS in a model's config selects the behavior.

Called models return OUT, twice the input IN, on a device, and WHERE: 1 if the input was on a device.
"""

import asyncio
import json
import os
import sys
import time

sys.path.append(os.environ["NEREID_PRODUCER"])

import numpy as np
import triton_python_backend_utils as pb_utils
from producer import OnDevice, place

#: Called models by name: whether the input is on a device if the config allows it, and whether the output
#: stays there for another model.
CALLED = {
    "plain": (True, True),
    "listed": (True, True),
    "stacked": (False, False),
    "states": (False, False),
    "cached": (False, False),
    "warmed": (True, True),
}

#: Ensembles, with their expected outputs.
ENSEMBLES = {"ensemble": ("OUT", "SECOND", "WHERE"), "shown": ("OUT", "SECOND", "WHERE", "MID")}

START, END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END


def put(name, array, device=0):
    return pb_utils.Tensor.from_dlpack(name, OnDevice(np.asarray(array, np.float32), place(device)))


def values(tensor):
    raw = tensor.as_numpy() if tensor.is_cpu() else np.frombuffer(tensor._data.read(), np.float32)
    return raw.reshape(tensor.shape())


def taken(request, name="IN"):
    return pb_utils.get_input_tensor_by_name(request, name)


def output(response, name="OUT"):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, name)


def call(model, *tensors, outputs=("OUT", "WHERE"), **more):
    return pb_utils.InferenceRequest(model_name=model, inputs=list(tensors), requested_output_names=list(outputs), **more)


NUMBERS = {
    "none": np.zeros((2, 0), np.float32),
    "small": np.arange(6, dtype=np.float32).reshape(2, 3),
    "large": np.arange(2 * 20_000, dtype=np.float32).reshape(2, 20_000),
}


def where(x):
    return pb_utils.Tensor("WHERE", np.full((x.shape()[0], 1), 0 if x.is_cpu() else 1, np.int32))


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.device = int(args["model_instance_device_id"])
        self.acts = getattr(self, config["parameters"]["ACTS"]["string_value"])
        self.name = args["model_name"]
        self.warmed = 0
        self.kept = {}

    def execute(self, requests):
        return self.acts(requests)

    # Called models.

    def plain(self, requests):
        return [self.twice(taken(request), request) for request in requests]

    def twice(self, x, request, *more):
        outputs = [where(x), *more]
        if "OUT" in request.requested_output_names():
            outputs.append(put("OUT", values(x) * 2, self.device if x.is_cpu() else x.__dlpack_device__()[1]))
        return pb_utils.InferenceResponse(outputs)

    def listed(self, requests):
        """A batch in which some requests have their inputs on a device and others on the host."""
        return [self.twice(taken(request), request) for request in requests]

    def stacked(self, requests):
        assert len(requests) == 1
        x = taken(requests[0])
        assert x.is_cpu()
        return [self.twice(x, requests[0])]

    def states(self, requests):
        """The state is the sum of all inputs, on a device; OUT is twice the input plus the state."""
        responses = []
        for request in requests:
            x, state = taken(request), taken(request, "STATE_IN")
            assert state.is_cpu()
            total = values(state) + values(x)
            responses.append(pb_utils.InferenceResponse([
                put("OUT", total * 2), where(x), put("STATE_OUT", total, 1),
            ]))  # fmt: skip
        return responses

    def cached(self, requests):
        responses = []
        for request in requests:
            self.warmed += 1
            runs = pb_utils.Tensor("RUNS", np.full((2, 1), self.warmed, np.int32))
            responses.append(self.twice(taken(request), request, runs))
        return responses

    def warms(self, requests):
        """Counts its warm-up, whose input has one row."""
        responses = []
        for request in requests:
            x = taken(request)
            if x.shape()[0] == 1:
                self.warmed += 1
            else:
                assert self.warmed == 3, self.warmed
            responses.append(self.twice(x, request))
        return responses

    def thrice(self, requests):
        """Decoupled: three responses, on both devices."""
        for request in requests:
            x = taken(request)
            sender = request.get_response_sender()
            for k in range(3):
                sender.send(pb_utils.InferenceResponse([put("OUT", values(x) * 2 + k, k % 2), where(x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def endless(self, requests):
        """Decoupled: sends responses until the request is cancelled."""
        for request in requests:
            x = taken(request)
            sender = request.get_response_sender()
            while not request.is_cancelled():
                sender.send(pb_utils.InferenceResponse([put("OUT", values(x) * 2), where(x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def again(self, requests):
        """Decoupled: reschedules its request once, and answers with an input that it has received twice."""
        for request in requests:
            x = taken(request)
            before = self.kept.setdefault(request.request_id(), [])
            before.append(values(x))
            sender = request.get_response_sender()
            if len(before) == 1:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                continue
            assert (before[0] == before[1]).all(), before
            del self.kept[request.request_id()]
            sender.send(pb_utils.InferenceResponse([put("OUT", values(x) * 2), where(x)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def passes(self, requests):
        """Decoupled: forwards the responses of another model's stream unchanged."""
        for request in requests:
            sender = request.get_response_sender()
            model = self.name.replace("passes", "thrice")
            for response in call(model, put("IN", values(taken(request))), trace=request.trace()).exec(decoupled=True):
                if response.output_tensors():
                    sender.send(pb_utils.InferenceResponse([output(response), output(response, "WHERE")]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def optional(self, requests):
        """MAYBE exists if the first value is 7."""
        responses = []
        for request in requests:
            x = taken(request)
            more = [put("MAYBE", values(x), 1)] if values(x).flat[:1].tolist() == [7] else []
            responses.append(self.twice(x, request, *more))
        return responses

    def adds(self, requests):
        """OUT is the input plus MAYBE, if it exists."""
        responses = []
        for request in requests:
            x, maybe = taken(request), taken(request, "MAYBE")
            total = values(x) + (0 if maybe is None else values(maybe))
            responses.append(pb_utils.InferenceResponse([put("OUT", total), where(x)]))
        return responses

    def raises(self, requests):
        """Fails with its input, and an output, in local variables of the exception's frame."""
        x = taken(requests[0])
        output = put("OUT", values(x))
        assert not output

    def words(self, requests):
        """BYTES, which are never on a device."""
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", taken(request).as_numpy())]) for request in requests]

    # Calling models: cases by name.

    async def caller(self, requests):
        responses = []
        for request in requests:
            name, *arguments = taken(request, "CASE").as_numpy()[0].decode().split(":")
            self.request = request
            result = getattr(self, f"case_{name}")(*arguments)
            if asyncio.iscoroutine(result):
                result = await result
            text = np.array([(result or "good").encode()], object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", text)]))
        return responses

    def more(self):
        """Arguments that tie a request to the caller's trace."""
        return {"trace": self.request.trace()} if self.request.request_id() == "traced" else {}

    def check(self, response, want, inside, stays):
        got, seen = output(response), output(response, "WHERE").as_numpy()
        traced = self.request.request_id() == "traced"
        assert (values(got) == want).all(), (values(got), want)
        assert (seen == (1 if inside and want.size and not traced else 0)).all(), (seen, inside)
        assert got.is_cpu() == (traced or not stays or not want.size), (got.is_cpu(), stays)

    def case_calls(self, model, size):
        """One call, with the input on a device, and with it on the host."""
        kind, takes = model.rsplit("_", 1)
        inside, stays = CALLED.get(kind, (False, False))
        x = NUMBERS[size]
        for how in ("device", "host"):
            more = dict(self.more())
            if kind == "states":
                more.update(correlation_id=7, flags=START | END)
            given = put("IN", x, 1) if how == "device" else pb_utils.Tensor("IN", x)
            if kind in ("ensemble", "shown"):
                self.check_ensemble(call(model, given, outputs=ENSEMBLES[kind], **more).exec(), x, model)
                continue
            response = call(model, given, **more).exec()
            self.check(response, x * 2, inside and takes == "yes" and how == "device", stays)

    def check_ensemble(self, response, x, model, maybe=0):
        """Later steps read the tensor of the first on its device, if both accept that and no client receives it."""
        traced = self.request.request_id() == "traced"
        assert (values(output(response)) == x * 4).all()
        assert (values(output(response, "SECOND")) == x * 2 + maybe).all()
        inside = int(model == "ensemble_yes" and x.size > 0 and not traced)
        assert (output(response, "WHERE").as_numpy() == inside).all(), output(response, "WHERE").as_numpy()

    def case_sequence(self, model):
        """A sequence with a state created on a device: it includes the earlier requests."""
        for ident in (11, 12):
            total = 0
            for k in range(4):
                x = NUMBERS["large"] + k + ident
                total = total + x
                flags = START if k == 0 else END if k == 3 else 0
                outputs = ("OUT", "WHERE", "STATE_OUT") if ident == 12 else ("OUT", "WHERE")
                request = call(model, put("IN", x, k % 2), outputs=outputs, correlation_id=ident, flags=flags, **self.more())
                response = request.exec()
                self.check(response, total * 2, False, False)
                assert ident == 11 or (output(response, "STATE_OUT").as_numpy() == total).all()

    def case_cache(self, model):
        """A hit returns the bytes of the miss without an execution, wherever the input is."""
        x = NUMBERS["large"] + 100
        runs = []
        for given in (put("IN", x), put("IN", x, 1), pb_utils.Tensor("IN", x), put("IN", x + 1), put("IN", x)):
            response = call(model, given, outputs=("OUT", "WHERE", "RUNS"), **self.more()).exec()
            self.check(response, values(given) * 2, False, False)
            runs.append(int(output(response, "RUNS").as_numpy()[0, 0]))
        assert runs == [runs[0]] * 3 + [runs[0] + 1, runs[0]], runs

    async def case_together(self, model):
        """Concurrent calls from a device and from the host: batches have both."""
        kind, takes = model.rsplit("_", 1)
        inside, stays = CALLED[kind]
        x = NUMBERS["large"]
        given = [put("IN", x + k, k % 2) if k % 4 else pb_utils.Tensor("IN", x + k) for k in range(12)]
        responses = await asyncio.gather(*(call(model, tensor, **self.more()).async_exec() for tensor in given))
        for k, response in enumerate(responses):
            self.check(response, (x + k) * 2, inside and takes == "yes" and k % 4 != 0, stays)

    def case_stream(self, model):
        """A stream of a decoupled model, whose responses are read later."""
        x = NUMBERS["large"]
        responses = list(call(model, put("IN", x), **self.more()).exec(decoupled=True))
        self.check_stream(model, responses, x)

    async def case_stream_soon(self, model):
        x = NUMBERS["large"]
        stream = await call(model, put("IN", x), **self.more()).async_exec(decoupled=True)
        self.check_stream(model, [response async for response in stream], x)

    def check_stream(self, model, responses, x):
        responses = [response for response in responses if response.has_error() or response.output_tensors()]
        kind, takes = model.rsplit("_", 1)
        assert len(responses) == (1 if kind == "again" else 3), responses
        for k, response in enumerate(responses):
            if kind == "flow":  # tensors that its first step streams stay on the device for the second
                self.check(response, (x * 2 + k) * 2, takes == "yes", False)
                continue
            # The forwarded request was made with an input on a device.
            self.check(response, x * 2 + k, takes == "yes" and kind != "again", kind != "again")
            if not output(response).is_cpu():
                assert output(response).__dlpack_device__() == (2, place(k % 2))

    def case_given_up(self, model):
        """A stream that is dropped after its first response."""
        stream = call(model, put("IN", NUMBERS["large"])).exec(decoupled=True)
        assert (values(output(next(iter(stream)))) == NUMBERS["large"] * 2).all()

    async def case_cancels(self, model):
        """Some requests are cancelled, partly at once, next to others that are not."""
        x = NUMBERS["large"]
        futures = [call(model, put("IN", x + k)).async_exec() for k in range(12)]
        for k in range(0, 12, 2):
            futures[k].cancel()
            await asyncio.sleep(0)
        for k in range(1, 12, 2):
            assert (values(output(await futures[k])) == (x + k) * 2).all()

    def case_raises(self, model):
        """An error of the called model."""
        for _ in range(2):
            error = call(model, put("IN", NUMBERS["large"]), outputs=("OUT",)).exec().error()
            assert "assert not output" in error.message() or "AssertionError" in error.message(), error.message()

    def case_optional(self, model):
        """An optional input of a step, which is an optional output of the step before."""
        for first in (7, 8, 7):
            x = NUMBERS["large"] + first
            wanted = ENSEMBLES[model.rsplit("_", 1)[0]]
            response = call(model, pb_utils.Tensor("IN", x), outputs=wanted, **self.more()).exec()
            self.check_ensemble(response, x, model, x if first == 7 else 0)

    # Preferred locations of outputs.

    def prefers(self, model, x, device, given=None, outputs=("OUT", "WHERE")):
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, place(int(device)))
        more = self.more()
        if model.startswith("states"):
            more.update(correlation_id=21, flags=START | END)
        return call(model, given or put("IN", x, 1), outputs=outputs, preferred_memory=memory, **more)

    def check_preferred(self, response, want, device):
        """Checks that each output is on that device, except those without elements. Returns them."""
        outputs = [output(response), output(response, "WHERE")]
        for tensor in outputs:
            assert tensor.is_cpu() == (0 in tensor.shape()), (tensor.name(), tensor.is_cpu())
            assert tensor.is_cpu() or tensor.__dlpack_device__() == (2, place(int(device))), tensor.__dlpack_device__()
        assert (values(outputs[0]) == want).all()
        seen = np.frombuffer(outputs[1]._data.read(), np.int32)
        assert seen.shape == (want.shape[0],) and ((seen == 0) | (seen == 1)).all(), seen
        return outputs

    async def case_prefers(self, model, device, size):
        """Outputs that are requested on a device are there, wherever the model creates them."""
        x = NUMBERS[size]
        times = 4 if model.startswith("ensemble") else 2
        kept = []
        for k in range(2):
            kept.append((self.check_preferred(self.prefers(model, x + k, device).exec(), (x + k) * times, device), k))
            soon = await self.prefers(model, x, device, pb_utils.Tensor("IN", x)).async_exec()
            self.check_preferred(soon, x * times, device)
        for (first, _), k in kept:  # each has its own memory
            assert (values(first) == (x + k) * times).all()
        (first, _), _ = kept[0]
        # A tensor copied to a device can be used like any other: by a model, by DLPack, and by the client.
        if size == "large":
            other = call("plain_" + model.rsplit("_", 1)[1], pb_utils.Tensor.from_dlpack("IN", first), **self.more()).exec()
            assert (values(output(other)) == x * times * 2).all()

    async def case_prefers_stream(self, model, device):
        x = NUMBERS["large"]
        stream = list(self.prefers(model, x, device).exec(decoupled=True))
        soon = [r async for r in await self.prefers(model, x, device).async_exec(decoupled=True)]
        for responses in stream, soon:
            responses = [r for r in responses if r.has_error() or r.output_tensors()]
            assert len(responses) == 3, responses
            for k, response in enumerate(responses):
                self.check_preferred(response, x * 2 + k, device)

    def case_prefers_given_up(self, model):
        """A stream with a preference that is dropped after its first response."""
        stream = self.prefers(model, NUMBERS["large"], 1).exec(decoupled=True)
        self.check_preferred(next(iter(stream)), NUMBERS["large"] * 2, 1)

    def case_prefers_words(self, model):
        """BYTES are on the host."""
        words = np.array([b"one", b"", b"x" * 9000], object)
        got = output(self.prefers(model, None, 0, pb_utils.Tensor("IN", words), ("OUT",)).exec())
        assert got.is_cpu() and (got.as_numpy() == words).all()

    def case_prefers_none(self, model, device):
        """The device, or any device, is missing."""
        for x in NUMBERS.values():
            response = self.prefers(model, x, device, pb_utils.Tensor("IN", x)).exec()
            for tensor, want in (output(response), x * 2), (output(response, "WHERE"), 0):
                assert tensor.is_cpu() and (tensor.as_numpy() == want).all()

    def case_prefers_fails(self, model, fault, where):
        """The driver fails: an output stays where it is, "cpu" or its device's number, and the next one succeeds."""
        import ctypes

        x = NUMBERS["large"]
        given = pb_utils.Tensor("IN", x)
        self.check_preferred(self.prefers(model, x, 1, given).exec(), x * 2, 1)
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fakecuda_fail(fault.replace("/", ":").encode())
        try:
            kept = [self.prefers(model, x, 1, given).exec() for _ in range(3)]
        finally:
            driver.fakecuda_fail(b"")
        got = output(kept[0])
        assert got.is_cpu() == (where == "cpu") and (got.is_cpu() or got.__dlpack_device__() == (2, int(where)))
        for response in kept:
            assert (values(output(response)) == x * 2).all()
        self.check_preferred(self.prefers(model, x, 1, given).exec(), x * 2, 1)

    def case_prefers_forked(self, model):
        """A forked process of the model receives outputs on the host."""
        import multiprocessing

        place(1)  # which the child cannot request
        context = multiprocessing.get_context("fork")
        box = context.SimpleQueue()

        def ask():
            try:
                got = output(self.prefers(model, None, 1, pb_utils.Tensor("IN", NUMBERS["large"])).exec())
                box.put("good" if got.is_cpu() and (got.as_numpy() == NUMBERS["large"] * 2).all() else "wrong")
            except BaseException as error:
                box.put(repr(error))

        child = context.Process(target=ask)
        child.start()
        result = box.get()
        child.join()
        return result

    def case_forwards(self, model):
        """Tensors from one model are forwarded to another without being read."""
        x = NUMBERS["large"]
        y = output(call(model, put("IN", x, 1)).exec())
        for _ in range(3):
            y = output(call(model, pb_utils.Tensor.from_dlpack("IN", y) if not y.is_cpu() else y).exec())
        assert (values(y) == x * 16).all()

    # State after the end of other processes. Marks are files: "begun" means that a tensor is held, "the test" frees it.

    def case_holds(self, model, count, marks):
        """Hold unread tensors until a mark exists, then read them."""
        x = NUMBERS["large"]
        held = [output(call(model, put("IN", x + k)).exec()) for k in range(int(count))]
        open(os.path.join(marks, "begun"), "w").close()
        while not os.path.exists(os.path.join(marks, "the test")):
            time.sleep(0.002)
        failures = []
        for k, tensor in enumerate(held):
            try:
                assert (values(tensor) == (x + k) * 2).all()
            except pb_utils.TritonModelException as error:
                failures.append(str(error))
        return "; ".join(failures)

    def case_keeps(self, model):
        """Keep tensors beyond the request, one of them unread."""
        self.kept[model] = [output(call(model, put("IN", NUMBERS["large"])).exec()) for _ in range(2)]
        assert (values(self.kept[model][0]) == NUMBERS["large"] * 2).all()

    def case_impatient(self):
        """From now on each call tries whether the callee accepts tensors on devices, ignoring earlier results."""
        from pb_stub import inferences

        inferences.TRY_AGAIN_SECONDS = 0.0

    def case_turned(self, model, size):
        """A model that now accepts tensors on devices, despite its name."""
        x = NUMBERS[size]
        self.check(call(model, put("IN", x)).exec(), x * 2, True, True)
