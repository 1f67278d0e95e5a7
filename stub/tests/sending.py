"""Texts and models for the tests of response senders."""

from __future__ import annotations

import textwrap
from typing import Any

from conftest import Start
from frames import Request, Response
from supervisor import Supervisor

from models import BATCH_ERROR

RESCHEDULE = 8
UNABLE = "Unable to send response. "
CLOSED = UNABLE + "Response sender has been closed."
TWO = UNABLE + "Non-decoupled model cannot send more than one response."
EARLY_FINAL = UNABLE + "Non-decoupled model cannot send complete final before sending a response."
UNSUPPORTED = UNABLE + "Unsupported flag provided."
NOTHING = "Inference Response object must be provided when the response flags is set to zero."
SELF_MADE = UNABLE + "Response sender has no reference to the decoupled state of the model."
DROPPED = BATCH_ERROR + "the response sender was dropped before it had sent the final flag."
UNANSWERED = BATCH_ERROR + "execute returned no response for this request, and none was sent."

HEAD = """
import asyncio, gc, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def answer(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values or (7,), np.int32))])

def failing(text, code=pb_utils.TritonError.INTERNAL):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))

def refusal(call, *args, **named):
    try:
        call(*args, **named)
    except pb_utils.TritonModelException as error:
        return str(error)
    except TypeError as error:
        return "TypeError"
    return ""

def texts(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array(values, np.object_))])

"""


def executing(body: str) -> str:
    """A model whose execute has this body."""
    return (
        HEAD
        + "class TritonPythonModel:\n    def execute(self, requests):\n"
        + textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    )


def flags_of(responses: list[Response]) -> list[int]:
    return [response.flags for response in responses]


def errors(stub: Supervisor) -> list[str]:
    """The logged errors."""
    return [line["message"] for line in stub.logs if line["level"] == 2]


def run(start: Start, body: str, decoupled: bool, requests: int = 1) -> tuple[Supervisor, Any]:
    stub = start(executing(body), decoupled=decoupled)
    return stub, stub.execute(*(Request(number) for number in range(1, requests + 1)))
