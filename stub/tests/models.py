"""Models shared by tests, and the start of their error texts."""

from __future__ import annotations

import textwrap

BATCH_ERROR = "Failed to process the request(s) for model 'm_0_0', message: "

IDENTITY = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                for request in requests
            ]
"""


def model(body: str) -> str:
    """A model whose execute has this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 12)
    return f"""
    import triton_python_backend_utils as pb_utils
    import numpy as np
    import asyncio

    class TritonPythonModel:
        def execute(self, requests):
{lines}
    """
