"""Adds and subtracts two vectors and counts how long that took."""

from __future__ import annotations

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

    def initialize(self, args: dict[str, str]) -> None:
        # Every instance makes these objects; name and labels are the same, so all share one value. The family
        # has to live as long as its metrics.
        self.family = pb_utils.MetricFamily(
            name="requests_process_latency_ns",
            description="Cumulative time spent processing requests",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.latency = self.family.Metric(labels=labels)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        start = time.perf_counter_ns()
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            responses.append(pb_utils.InferenceResponse(outputs))

        # Once for each execution and not for each request: every call asks the server.
        self.latency.increment(time.perf_counter_ns() - start)
        pb_utils.Logger.log_info(f"Cumulative requests processing latency: {self.latency.value()}")
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
