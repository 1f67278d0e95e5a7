"""Places on devices: client memory that receives outputs directly, without a copy on the host.

EXECUTE names a range of an announced allocation (region 6). A DeviceTarget copies an output into it
on the device. If that fails, the output goes to the host, and the server copies it from there. It
fails

* if the allocation cannot be opened, because its client has exited, or a copy fails; * if the
output is a host array and this process has no context of the device: none is created for this.

The allocation is opened once for inputs and outputs (deviceloans.Opening). Models do not see it: an
input of a client is copied on first access. Before an output is written over an input that was not
accessed yet, the input is copied. The supervisor does not send FREED before the request is
answered. A DeviceTarget only has the number, so that a request kept by the model does not keep a
client's memory open.
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
    """A client's allocation that receives outputs."""

    region = layout.REGION_DEVICE_PLACE

    def __init__(self, devices: OnDevice, number: int) -> None:
        opening = devices.opening(number)
        if opening is None:
            raise NotUnderstood(f"an output is wanted in allocation {number}, which was not announced")
        self.size = opening.allocation.size
        self._devices = devices
        self._number = number

    def least(self, data: Any) -> int:
        """Return the minimum size of an output to write: small host outputs travel in the frame."""
        return 1 if isinstance(data, DeviceMemory) else WRITE_MIN

    def put(self, tensor: Tensor, offset: int, size: int, inputs: Inputs) -> bool:
        """Copy an output to an offset and wait; False if it must go to the host."""
        opening = self._devices.opening(self._number)
        source = inputs.bytes_of(tensor)
        if opening is None or source is None:
            return False
        try:
            if isinstance(source, DeviceMemory):
                begin = source.address  # for a client's input, our own copy
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
            return False  # the path through the host reports the error if the bytes are not available


def _make_way(begin: int, size: int, inputs: Inputs) -> None:
    """Copy inputs of clients that overlap an output's destination."""
    for reference in list(inputs.alive.values()):
        loan = reference()
        if isinstance(loan, ClientBorrowed) and loan.lies_in(begin, size):
            loan.freeze()


def _address_of(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
