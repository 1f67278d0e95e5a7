"""Evaluates an expression over the API to text, for Triton's modules and for these."""

from __future__ import annotations

import array
import collections
import concurrent.futures
import copy
import json
import pickle
import re
import types
import weakref
from typing import Any

import numpy as np


class Text(str):
    pass


class Number:
    """Converts to an integer by __index__; Counted by __int__."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Counted:
    def __int__(self) -> int:
        return 3




class Sequence:
    """A sequence by __getitem__ and __len__ alone."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Dict(dict):  # type: ignore[type-arg]
    pass


class Half:
    """Has one half of the DLPack protocol; Liar returns no capsule; Thrower fails."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return None


class Liar(Half):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Thrower(Liar):
    def __dlpack__(self, stream: Any = None) -> Any:
        raise ValueError("no memory")


def throw(error: Any) -> None:
    raise error


def done() -> Any:
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    future.set_result(3)
    return future


def namespace(pb_utils: Any, c: Any) -> dict[str, Any]:
    """Make the names for one expression: some expressions modify their arguments."""

    def req(**changes: Any) -> Any:
        return pb_utils.InferenceRequest(**{"inputs": [], "requested_output_names": [], "model_name": "m", **changes})

    def config(fields: Any, change: Any) -> Any:
        made = pb_utils.ModelConfig(json.dumps(fields))
        result = change(made)
        return result, made.as_dict()

    floats = np.arange(4, dtype=np.float32)
    space = {name: getattr(pb_utils, name) for name in dir(pb_utils) if not name.startswith("_")}
    space.update(
        pb_utils=pb_utils, c=c, np=np, json=json, copy=copy, pickle=pickle, weakref=weakref, array=array.array,
        UserList=collections.UserList, OrderedDict=collections.OrderedDict, deque=collections.deque,
        MappingProxyType=types.MappingProxyType, req=req, config=config, throw=throw, done=done,
        Text=Text, Number=Number, Counted=Counted, Sequence=Sequence, Dict=Dict,
        Half=Half, Liar=Liar, Thrower=Thrower,
        A=floats, T=pb_utils.Tensor("T", floats), S=pb_utils.Tensor("S", np.array([b"s"], np.object_)),
        REQ=req(request_id="id"), RES=pb_utils.InferenceResponse([]), ERR=pb_utils.TritonError("bad"),
        CPU=c.TRITONSERVER_MEMORY_CPU, GPU=c.TRITONSERVER_MEMORY_GPU,
        short=lambda value: type(value).__name__, named=lambda tensor: tensor and tensor.name(),
    )  # fmt: skip
    return space


def outcome(expression: str, pb_utils: Any, c: Any) -> str:
    """Return the value's repr, or the exception with its text, without memory addresses."""
    try:
        text = repr(eval(expression, namespace(pb_utils, c)))
    except BaseException as error:
        text = f"raises {type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)
