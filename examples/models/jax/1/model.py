"""Adds and subtracts two vectors with JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

    def initialize(self, args: dict[str, str]) -> None:
        self.jnp: Any = None
        # Your own model would simply import its packages, and fail to load without them. This one loads all
        # the same and answers with an error, so that the other examples are served where JAX is not installed.
        try:
            import jax.numpy
        except ImportError as error:
            self.missing = f"{args['model_name']}: jax is not installed for the Python of the models ({error})"
            pb_utils.Logger.log_warn(self.missing)
        else:
            self.jnp = jax.numpy

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            if self.jnp is None:
                error = pb_utils.TritonError(self.missing, pb_utils.TritonError.UNAVAILABLE)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            a = self.jnp.array(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())
            b = self.jnp.array(pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy())
            total = pb_utils.Tensor("OUTPUT0", np.array(a + b))
            difference = pb_utils.Tensor("OUTPUT1", np.array(a - b))
            responses.append(pb_utils.InferenceResponse([total, difference]))
        return responses

    def finalize(self) -> None:
        print("Cleaning up...")
