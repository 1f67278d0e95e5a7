"""Rejected calls: code that interrupts a thread during its call would wait for itself."""

from __future__ import annotations

from conftest import Start
from frames import Request


def test_refused_while_the_thread_reads_or_writes(start: Start) -> None:
    stub = start(
        """
        import gc
        import numpy as np
        import triton_python_backend_utils as pb_utils

        def tell(told):
            try:
                pb_utils.load_model("other")
            except pb_utils.TritonModelException as error:
                told.append(str(error))

        class TritonPythonModel:
            def execute(self, requests):
                told = []
                channel = next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
                # A destructor or a signal handler may run between any two steps of these.
                write, hear = channel._write, channel._hear
                channel._hear = lambda: (tell(told), hear())
                channel._write = lambda frame: (tell(told), write(frame))
                try:
                    channel.heard()
                    from pb_stub import messages
                    channel.post(messages.metric(channel.life, 1, 1, 0.0))
                finally:
                    del channel._write, channel._hear
                answer = "\\n".join(told).encode()
                return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([answer], dtype=object))])]
        """
    )
    stub.start_batch(Request())
    assert stub.receive().kind == "METRIC"
    (response,) = stub.finish_batch().responses
    told = response["OUT"][0].decode().splitlines()
    assert len(told) == 2
    assert all("not possible in a signal handler or destructor" in text for text in told), told
