import asyncio
import gc
import json
import multiprocessing
import os
import tempfile
import threading
import time

import c_python_backend_utils
import numpy as np
import triton_python_backend_utils as pb_utils

MODEL = "identity"
PREFIX = "Model {} - Error when running inference: "


def tensor(name, value, dtype=np.float32):
    return pb_utils.Tensor(name, np.array(value, dtype))


def call(n=3, **changes):
    """A request to the identity model, with n elements of value n."""
    fields = {
        "model_name": MODEL,
        "requested_output_names": ["OUT"],
        "inputs": [pb_utils.Tensor("IN", np.full(n, n, np.float32))],
        **changes,
    }
    return pb_utils.InferenceRequest(**fields)


def check(response, n=3):
    assert not response.has_error(), response.error().message()
    assert response.error() is None and response.parameters() == "{}"
    (output,) = response.output_tensors()
    assert output.name() == "OUT" and output.shape() == [n] and output.is_cpu()
    array = output.as_numpy()
    assert array.dtype == np.float32 and (array == n).all()


def refused(response, code, text):
    assert response.has_error() and response.output_tensors() == [] and response.parameters() == ""
    assert response.error().message() == text, response.error().message()
    assert response.error().code() == code, response.error().code()


def raises(kind, function, *arguments, text="", **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert text in str(error), str(error)
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def seen(**fields):
    response = call(model_name="mirror", requested_output_names=["SEEN"], **fields).exec()
    assert not response.has_error(), response.error().message()
    (output,) = response.output_tensors()
    return json.loads(output.as_numpy()[0])


def until(condition, what):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def patient(mark, **changes):
    return call(
        model_name="patient", requested_output_names=[], inputs=[tensor("MARK", [mark.encode()], np.object_)], **changes
    )


def repeat(count, how="", model="repeat"):
    """A request to the model that sends the numbers up to count."""
    return call(
        model_name=model,
        requested_output_names=["OUT"],
        inputs=[tensor("COUNT", [count], np.int32), tensor("HOW", [how.encode()], np.object_)],
    )


def numbers(responses):
    """The content of responses: a number, "end" for an empty one, or the text of an error."""
    found = []
    for response in responses:
        if response.has_error():
            assert response.output_tensors() == [] and response.parameters() == ""
            found.append(response.error().message())
        elif response.output_tensors():
            (output,) = response.output_tensors()
            assert response.parameters() == "{}" and len(set(output.as_numpy().tolist())) == 1
            found.append(int(output.as_numpy()[0]))
        else:
            assert response.parameters() == ""
            found.append("end")
    return found


class Mark:
    """Names the files in which the patient model reports its progress."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        return os.path.join(self.directory.name, "m")

    def __exit__(self, *_):
        self.directory.cleanup()


def in_child(n):
    response = call(n).exec()
    check(response, n)
    return os.getpid()


def in_grandchild(n):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(in_child, [n])[0]


class NoDaemon(multiprocessing.get_context("fork").Process):
    daemon = property(lambda self: False, lambda self, value: None)


def refused_in_child(_):
    refused(call(model_name="nobody").exec(), pb_utils.TritonError.NOT_FOUND, unknown("nobody"))
    raises(pb_utils.TritonModelException, call().exec, decoupled=True, text="forked")
    return True


def unknown(name, rest=" is not found"):
    return PREFIX.format(name) + f"Request for unknown model: '{name}'{rest}"


class TritonPythonModel:
    def initialize(self, args):
        raises(
            pb_utils.TritonModelException, call().exec, text="BLS is only supported during the 'execute' function."
        )

        async def soon():
            future = call().async_exec()
            assert isinstance(future, asyncio.Future)
            await future

        loop = asyncio.new_event_loop()
        raises(
            pb_utils.TritonModelException,
            loop.run_until_complete,
            soon(),
            text="BLS is only supported during the 'execute' function.",
        )
        loop.close()
        self.pool = multiprocessing.get_context("fork").Pool(2)

    def finalize(self):
        self.pool.terminate()
        self.pool.join()
        raises(
            pb_utils.TritonModelException, call().exec, text="BLS is only supported during the 'execute' function."
        )
        print("caller is finalized as it should be", flush=True)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.request = request
        case = pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode()
        name, _, argument = case.partition(":")
        result = getattr(self, "case_" + name)(*([argument] if argument else []))
        self.request = None
        if isinstance(result, pb_utils.InferenceResponse):
            return result
        return pb_utils.InferenceResponse([tensor("RESULT", [(result or "good").encode()], np.object_)])

    # Calls.

    def case_sizes(self):
        for n in (0, 1, 3, 1024, 1025, 20000, 1 << 20):
            check(call(n).exec(), n)

    def case_forms_of_the_call(self):
        check(call().exec(False))
        check(call().exec(decoupled=False))
        check(call().exec(np.bool_(False)))
        for bad in (None, "no", [], {}):
            raises(TypeError, call().exec, bad, text="exec(): incompatible function arguments")
            raises(TypeError, call().exec, decoupled=bad)
        raises(TypeError, call().exec, False, False)
        raises(TypeError, call().exec, other=False)
        raises(TypeError, call().async_exec, decoupled=None)

    def case_name_as_bytes(self):
        check(call(model_name=b"identity").exec())
        raises(UnicodeDecodeError, call(model_name=b"\xff").exec)

    def case_all_outputs(self):
        response = call(model_name="two_inputs", requested_output_names=[], inputs=[tensor("A", [3]), tensor("B", [1])]).exec()
        outputs = {output.name(): output.as_numpy().tolist() for output in response.output_tensors()}
        assert outputs == {"SUM": [4], "DIFFERENCE": [2]}, outputs

    def case_versions(self):
        check(call(model_version=1).exec())
        check(call(model_version=-1).exec())

    def case_fields(self):
        assert seen() == {
            "id": "", "correlation_id": 0, "flags": 0, "timeout": 0, "parameters": "{}", "wanted": ["SEEN"],
        }
        fields = seen(
            request_id="ürgent",
            correlation_id=2**64 - 1,
            flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START | pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
            timeout=11000000000,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
            trace=self.request.trace(),
            parameters={"s": "ä", "i": -5, "b": True, "priority": 3},
        )
        parameters = json.loads(fields.pop("parameters"))
        assert parameters == {"s": "ä", "i": -5, "b": True, "priority": 3}, parameters
        assert fields == {
            "id": "ürgent", "correlation_id": 2**64 - 1, "flags": 3, "timeout": 11000000000, "wanted": ["SEEN"],
        }, fields
        assert seen(correlation_id="seq")["correlation_id"] == "seq"
        for correlation_id in (7, "seq"):
            fields = seen(correlation_id=correlation_id, flags=2**32 - 1)
            assert (fields["correlation_id"], fields["flags"]) == (correlation_id, 2**32 - 1), fields
        check(call(preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)).exec())

    def case_parameters_of_responses(self):
        response = call(model_name="mirror", parameters={"a": 1, "b": "x", "c": False}).exec()
        assert json.loads(response.parameters()) == {"a": 1, "b": "x", "c": False}
        assert " " not in response.parameters()

    # Rejected calls.

    def case_unknown_models(self):
        NOT_FOUND = pb_utils.TritonError.NOT_FOUND
        refused(call(model_name="nobody").exec(), NOT_FOUND, unknown("nobody"))
        refused(call(model_name="").exec(), NOT_FOUND, unknown(""))
        refused(call(model_version=7).exec(), NOT_FOUND, unknown("identity", " version 7 is not found"))
        refused(call(model_name="nobody", parameters={"a": 2**63}).exec(), NOT_FOUND, unknown("nobody"))

    def case_refused_requests(self):
        INVALID, INTERNAL = pb_utils.TritonError.INVALID_ARG, pb_utils.TritonError.INTERNAL
        prefix, anonymous = PREFIX.format("two_inputs"), "[request id: <id_unknown>] "

        def two(*inputs, **changes):
            return call(model_name="two_inputs", **{"requested_output_names": [], "inputs": list(inputs), **changes}).exec()

        refused(
            two(tensor("A", [1])), INVALID,
            prefix + anonymous + "expected 2 inputs but got 1 inputs for model 'two_inputs'. Got input(s) ['A'], but missing "
            "required input(s) ['B']. Please provide all required input(s).",
        )
        refused(
            two(tensor("A", [1]), tensor("A", [1])), INVALID,
            prefix + anonymous + "input 'A' already exists in request",
        )
        refused(
            two(tensor("A", [1]), tensor("B", [1], np.int32), request_id="x"), INVALID,
            prefix + "[request id: x] inference input 'B' data-type is 'INT32', but model 'two_inputs' expects 'FP32'",
        )
        refused(
            two(tensor("A", [1]), tensor("B", [1]), requested_output_names=["C"]), INVALID,
            prefix + "unexpected inference output 'C' for model 'two_inputs'",
        )
        refused(
            two(tensor("A", [1]), tensor("B", [1]), parameters={"a": 2**63}), INTERNAL,
            prefix + "Unsupported value type on parameters",
        )
        refused(
            two(tensor("A", [1]), tensor("B", [[1]])), INVALID,
            prefix + anonymous + "unexpected shape for input 'B' for model 'two_inputs'. Expected [-1], got [1,1]. ",
        )

    def case_failing_models(self):
        E = pb_utils.TritonError

        def fails(how):
            return call(
                model_name="fails", requested_output_names=[], inputs=[tensor("HOW", [how.encode()], np.object_)]
            ).exec()

        refused(fails("cancelled"), E.CANCELLED, "it is cancelled")
        refused(fails("not found"), E.NOT_FOUND, "it is not found")
        response = fails("raise")
        assert response.error().code() == E.INTERNAL
        text = response.error().message()
        start = "Failed to process the request(s) for model 'fails_0', message: ValueError: no such thing\n\nAt:\n"
        assert text.startswith(start), text
        refused(fails("die"), E.INTERNAL, "Stub process 'fails_0' is not healthy.")
        refused(fails("not found"), E.NOT_FOUND, "it is not found")  # it has come back

    # Tensors.

    def case_inputs_as_they_are(self):
        """Inputs of execute are forwarded unchanged, also under their own name to another model."""
        x = pb_utils.get_input_tensor_by_name(self.request, "X")
        response = call(inputs=[pb_utils.Tensor("IN", x.as_numpy())]).exec()
        np.testing.assert_array_equal(response.output_tensors()[0].as_numpy(), x.as_numpy())
        again = call(inputs=[pb_utils.Tensor("IN", response.output_tensors()[0].as_numpy())]).exec()
        return pb_utils.InferenceResponse(again.output_tensors())

    def case_private_inputs(self):
        """The other model's input and output do not change when the arrays do."""
        for n in (3, 2000, 100000):
            array = np.full(n, n, np.float32)
            given = pb_utils.Tensor("IN", array)
            request = call(inputs=[given])
            check(request.exec(), n)
            array[:] = -1
            check(request.exec(), n)  # as it was first sent
            response = request.exec()
            response.output_tensors()[0].as_numpy()[:] = 5
            check(request.exec(), n)

    def case_strings(self):
        response = call(model_name="mirror", requested_output_names=["SEEN"], inputs=[]).exec()
        assert response.output_tensors()[0].as_numpy().dtype == np.object_
        with Mark() as mark:
            open(mark + ".enough", "w").close()
            response = patient(mark).exec()
            assert not response.has_error() and response.output_tensors() == []

    def case_memory_goes_back(self):
        free = c_python_backend_utils.shared_memory.free_memory
        check(call(100000).exec(), 100000)
        gc.collect()
        before = free()
        for _ in range(300):
            check(call(100000).exec(), 100000)
        held = [call(100000).exec() for _ in range(5)]
        del held
        until(lambda: free() >= before, "the stub's memory has not come back")

    # Concurrent calls.

    def case_one_object_from_threads(self):
        request = call(5000)
        good = []

        def work():
            for _ in range(20):
                check(request.exec(), 5000)
            good.append(1)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(good) == 8

    def case_a_thousand(self):
        async def all_of_them():
            sizes = [n % 50 for n in range(1000)]
            responses = await asyncio.gather(*[call(n).async_exec() for n in sizes])
            for n, response in zip(sizes, responses):
                check(response, n)

        asyncio.run(all_of_them())

    def case_threads_and_coroutines(self):
        failures = []

        def work():
            try:
                for n in range(50):
                    check(call(n).exec(), n)
            except BaseException as error:
                failures.append(error)

        async def run():
            for n in range(50):
                check(await call(n).async_exec(), n)

        threads = [threading.Thread(target=work), threading.Thread(target=lambda: asyncio.run(run()))]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        assert not failures, failures

    # Coroutines.

    def case_futures(self):
        raises(RuntimeError, call().async_exec, text="no running event loop")

        async def run():
            future = call().async_exec()
            assert isinstance(future, asyncio.Future) and not asyncio.iscoroutine(future)
            raises(TypeError, asyncio.get_running_loop().create_task, future)
            called = []
            future.add_done_callback(called.append)
            check(await future)
            await asyncio.sleep(0)
            assert called == [future]
            done, pending = await asyncio.wait([call().async_exec() for _ in range(3)])
            assert len(done) == 3 and not pending
            for one in done:
                check(one.result())
            refused(await call(model_name="nobody").async_exec(), pb_utils.TritonError.NOT_FOUND, unknown("nobody"))
            check(await asyncio.wait_for(call().async_exec(), 30))

        asyncio.run(run())

    def case_async_begins_at_once(self):
        async def run():
            with Mark() as mark:
                future = patient(mark).async_exec()
                until(lambda: os.path.exists(mark + ".begun"), "the request was not sent")  # the loop is blocked
                open(mark + ".enough", "w").close()
                assert not (await future).has_error()

        asyncio.run(run())

    def case_timeout_since_the_call(self):
        """A timeout starts with the call, so a very short one expires before the request arrives."""
        inputs = [pb_utils.Tensor("IN", np.ones((1, 2), np.float32))]
        late = call(model_name="hurried", inputs=inputs, timeout=1).exec()
        refused(late, pb_utils.TritonError.UNAVAILABLE, "Request timeout expired")
        assert not call(model_name="hurried", inputs=inputs, timeout=50000000).exec().has_error()

    def case_cancelled_futures(self):
        async def run():
            for how in ("cancel", "timeout"):
                with Mark() as mark:
                    future = patient(mark).async_exec()
                    while not os.path.exists(mark + ".begun"):
                        await asyncio.sleep(0.002)
                    try:
                        if how == "cancel":
                            assert future.cancel() and future.cancelled()
                            await future
                        else:
                            await asyncio.wait_for(future, 0.001)
                        raise AssertionError("the future was not cancelled")
                    except (asyncio.CancelledError, asyncio.TimeoutError):
                        pass
                    until(lambda: os.path.exists(mark + ".cancelled"), "the inference was not cancelled")
            future = call().async_exec()
            check(await future)
            assert not future.cancel()

        asyncio.run(run())

    def case_closed_loop(self):
        """A response for a closed loop is dropped."""

        async def begin():
            call(100000).async_exec()

        for _ in range(5):
            asyncio.run(begin())
        check(call().exec())

    # Streams of models that are not decoupled.

    def case_iterator_of_one(self):
        iterator = call().exec(decoupled=True)
        assert type(iterator) is pb_utils.ResponseIterator and iter(iterator) is iterator
        responses = list(iterator)
        assert len(responses) == 1
        check(responses[0])
        raises(StopIteration, next, iterator)
        assert list(iterator) == responses
        iterator.cancel()
        raises(TypeError, len, iterator)
        raises(TypeError, pb_utils.ResponseIterator)
        (failed,) = call(model_name="nobody").exec(decoupled=True)
        refused(failed, pb_utils.TritonError.NOT_FOUND, unknown("nobody"))

    def case_async_iterator_of_one(self):
        async def run():
            iterator = await call().async_exec(decoupled=True)
            responses = [response async for response in iterator]
            assert len(responses) == 1 and [response for response in iterator] == responses
            check(responses[0])
            (failed,) = await call(model_name="nobody").async_exec(decoupled=True)
            refused(failed, pb_utils.TritonError.NOT_FOUND, unknown("nobody"))

        asyncio.run(run())

    def case_deleted_iterator(self):
        """Deleting it cancels the inference without waiting."""
        with Mark() as mark:
            iterators = []

            def begin():
                iterators.append(patient(mark).exec(decoupled=True))

            thread = threading.Thread(target=begin)
            thread.start()
            until(lambda: os.path.exists(mark + ".begun"), "the request was not sent")
            open(mark + ".enough", "w").close()
            thread.join()
            assert len(list(iterators.pop())) == 1

    # Streams.

    def case_streams(self):
        for how in ("", "thread"):
            assert numbers(repeat(5, how).exec(decoupled=True)) == [0, 1, 2, 3, 4, "end"]
            assert numbers(repeat(0, how).exec(decoupled=True)) == ["end"]
            assert numbers(repeat(5, how + " flagged").exec(decoupled=True)) == [0, 1, 2, 3, 4]
            assert numbers(repeat(3, how + " large").exec(decoupled=True)) == [0, 1, 2, "end"]
            assert numbers(repeat(3, how + " fails").exec(decoupled=True)) == [0, "one is wrong", 2, "end"]

    def case_decoupled_is_asked_for(self):
        text = (
            "Model repeat is using the decoupled. The current BLS request call doesn't support models using the "
            "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for "
            "decoupled models.'"
        )
        refused(repeat(1).exec(), pb_utils.TritonError.UNSUPPORTED, PREFIX.format("repeat") + text)

    def case_long_streams(self):
        for how in ("", "thread large"):
            count = 300 if how else 5000
            assert numbers(repeat(count, how).exec(decoupled=True)) == [*range(count), "end"]

    def case_iterators(self):
        iterator = repeat(4).exec(decoupled=True)
        first = next(iterator)
        assert numbers([first]) == [0]
        for response in iterator:
            assert numbers([response]) == [1]
            break
        assert iter(iterator) is iterator
        assert numbers(iterator) == [2, 3, "end"]
        raises(StopIteration, next, iterator)
        assert numbers(iterator) == [0, 1, 2, 3, "end"]  # and all of them again
        for response in iterator:
            assert response is first
            break
        assert numbers(iter(iterator)) == [1, 2, 3, "end"]  # the rest of a replay
        iterator.cancel()

    def case_iterator_held_open(self):
        iterator = repeat(6, "thread").exec(decoupled=True)
        for number, response in enumerate(iterator):
            check(call(number).exec(), number)
            if number == 3:
                assert numbers(repeat(2).exec(decoupled=True)) == [0, 1, "end"]
        assert number == 6

    def case_streams_in_coroutines(self):
        async def taken(count, how=""):
            iterator = await repeat(count, how).async_exec(decoupled=True)
            return numbers([response async for response in iterator])

        async def run():
            counts = [0, 1, 5, 40, 100]
            found = await asyncio.gather(*[taken(count, "thread") for count in counts])
            assert found == [[*range(count), "end"] for count in counts], found
            iterator = await repeat(3, "thread").async_exec(decoupled=True)
            assert numbers(iterator) == [0, 1, 2, "end"]  # blocks the loop, as in Triton

        asyncio.run(run())

    def case_streams_in_threads(self):
        found = []

        def work(count):
            found.append(numbers(repeat(count, "thread").exec(decoupled=True)) == [*range(count), "end"])

        threads = [threading.Thread(target=work, args=(count,)) for count in (0, 3, 50, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 4

    def case_cancelled_streams(self):
        """A cancellation reaches the model even after its execute has returned."""
        for how in ("slow", "thread slow"):
            with Mark() as mark:
                iterator = repeat(10**6, f"{how} {mark}").exec(decoupled=True)
                next(iterator)
                assert iterator.cancel() is None
                iterator.cancel()
                *before, last = iterator
                refused(last, pb_utils.TritonError.CANCELLED, "as you like")
                assert "end" not in numbers(before)

    def case_deleted_streams(self):
        """Deleting an iterator neither waits nor leaves its model running."""
        for how in ("slow", "thread slow", "thread large"):
            with Mark() as mark:
                iterator = repeat(10**6, f"{how} {mark}").exec(decoupled=True)
                next(iterator)
                begin = time.monotonic()
                del iterator
                assert time.monotonic() - begin < 5
                until(lambda: os.path.exists(mark + ".cancelled"), "the inference was not cancelled")

    def case_deleted_streams_of_coroutines(self):
        async def run(mark):
            iterator = await repeat(10**6, f"thread slow {mark}").async_exec(decoupled=True)
            async for _ in iterator:
                break

        with Mark() as mark:
            asyncio.run(run(mark))
            gc.collect()
            until(lambda: os.path.exists(mark + ".cancelled"), "the inference was not cancelled")

    def case_slow_readers(self):
        """A reader that does not read blocks the model's send: neither memory nor queues grow."""
        with Mark() as mark:
            iterator = repeat(10**6, f"thread counted {mark}").exec(decoupled=True)

            def sent():
                with open(mark + ".count") as file:
                    return int(file.read() or 0)

            until(lambda: os.path.exists(mark + ".count"), "nothing was sent")
            last = -1
            while last != sent():  # until it has stopped
                last = sent()
                time.sleep(0.2)
            assert last < 1000, last
            for _ in range(500):
                next(iterator)
            until(lambda: sent() > last, "it does not go on")
            del iterator
            until(lambda: os.path.exists(mark + ".cancelled"), "the inference was not cancelled")

    def case_relayed_streams(self):
        for how in ("", "thread", "relayed_by_thread", "thread relayed_by_thread"):
            assert numbers(repeat(40, how, "relays").exec(decoupled=True)) == [*range(40), "end"]

    # Models behind models.

    def case_depth(self, depth):
        if depth == "0":
            return "0"
        case = tensor("CASE", [f"depth:{int(depth) - 1}".encode()], np.object_)
        response = call(model_name="caller", requested_output_names=["RESULT"], inputs=[case]).exec()
        if response.has_error():
            return response.error().message()
        return response.output_tensors()[0].as_numpy()[0].decode() + depth

    def case_diamond(self):
        async def run():
            cases = [tensor("CASE", [b"depth:1"], np.object_), tensor("CASE", [b"one"], np.object_)]
            return await asyncio.gather(
                call(model_name="other_caller", requested_output_names=["RESULT"], inputs=[cases[1]]).async_exec(),
                call(model_name="other_caller", requested_output_names=["RESULT"], inputs=[cases[1]]).async_exec(),
            )

        for response in asyncio.run(run()):
            assert response.output_tensors()[0].as_numpy()[0] == b"good"

    # Processes.

    def case_pool_of_initialize(self):
        pids = self.pool.map(in_child, [1, 5000, 3, 300000, 4, 5])
        assert os.getpid() not in pids

    def case_pool_of_execute(self):
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert os.getpid() not in pool.map(in_child, range(30))
            assert all(pool.map(refused_in_child, range(3)))

    def case_grandchildren(self):
        process = NoDaemon(target=in_grandchild, args=(3,))
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode

    def case_children_leave_nothing(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        self.case_pool_of_execute()
        gc.collect()
        before, threads = descriptors(), threading.active_count()
        for _ in range(3):
            self.case_pool_of_execute()
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
        gc.collect()
        until(lambda: descriptors() <= before, f"there were {before} descriptors")
        until(lambda: threading.active_count() <= threads, f"there were {threads} threads")

    # For tests that do something in the meantime.

    def case_wait(self, mark):
        """A call that lasts until it is released from outside."""
        response = patient(mark).exec()
        return "error: " + response.error().message() if response.has_error() else "good"
