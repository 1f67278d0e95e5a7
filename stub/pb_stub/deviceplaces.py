"""Places on devices: memory of clients there into which outputs are written here, without a copy on the host.

EXECUTE names a range of an allocation that was announced (region 6). A DeviceTarget copies an output there, on the
device, or says that it cannot: then the output goes to the host, and the server copies it from there. It cannot

* if the allocation does not open, as its client has ended, or a copy fails;
* if the output is an array of the host and this process has no context of the device: it makes none for that.

The allocation is opened once, for inputs and outputs (deviceloans.Opening), and models do not see it: an input of a
client is copied at the model's first look. What was not looked at yet, and lies where an output goes, is copied before.

The supervisor says FREED when the request is answered, and no sooner. A DeviceTarget has but the number, so that a
request which a model keeps does not keep a client's memory open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from c_python_backend_utils import cuda
from c_python_backend_utils.memory import DeviceError, DeviceMemory
from c_python_backend_utils.tensor import Tensor

from . import layout
from .deviceloans import ClientBorrowed
from .errors import NotUnderstood
from .ondevice import OnDevice
from .places import WRITE_MIN, Inputs


class DeviceTarget:
    """One allocation of a client in which outputs are wanted."""

    region = layout.REGION_DEVICE_PLACE

    def __init__(self, devices: OnDevice, number: int) -> None:
        opening = devices.opening(number)
        if opening is None:
            raise NotUnderstood(f"an output is wanted in allocation {number}, which was not announced")
        self.size = opening.allocation.size
        self._devices = devices
        self._number = number

    def least(self, data: Any) -> int:
        """The least size of an output that is written: on the host a small one is best in the frame."""
        return 1 if isinstance(data, DeviceMemory) else WRITE_MIN

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset. When this returns its bytes are there; False if they are to go to the host."""
        opening = self._devices.opening(self._number)
        source = inputs.bytes_of(tensor)
        if opening is None or source is None:
            return False
        try:
            if isinstance(source, DeviceMemory):
                begin = source.address  # of a client's input this is a copy of our own
                to = opening.address() + offset
                _make_way(to, size, inputs)
                opening.device().copy(to, begin, size, cuda.device(source.device))
                return True
            if not source.flags.c_contiguous or not cuda.met(opening.allocation.uuid):
                return False
            to = opening.address() + offset
            _make_way(to, size, inputs)
            opening.device().copy_from_host(to, _address_of(source), size)
            return True
        except (cuda.CudaError, DeviceError):
            return False  # the way by the host says why, if the bytes cannot be had at all


def _make_way(begin: int, size: int, inputs: Inputs) -> None:
    """Have the inputs of clients copied that lie where an output is about to be written."""
    for reference in list(inputs.alive.values()):
        loan = reference()
        if isinstance(loan, ClientBorrowed) and loan.lies_in(begin, size):
            loan.freeze()


def _address_of(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
