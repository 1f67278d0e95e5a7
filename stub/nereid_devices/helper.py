"""Communicates with the server in lines of JSON.

The first line lists the devices. After that, each line from the server requests a sample of them
and is answered by one line. The process ends with its input. If a call of the driver hangs, the
server kills the process; its inherited lifeline does so even if the server is killed.
"""

import json
import os
import sys
from typing import Any, Dict, List, Optional, TextIO

from nereid_devices import cuda, nvml


def command() -> None:
    """Answer lines until the input ends."""
    # Output of libraries must not mix with the lines for the server.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        devices = cuda.devices()
    except cuda.CudaError as error:
        _write(replies, {"devices": [], "error": str(error), "none": error.no_device})
        return
    _write(replies, {"devices": [device.told() for device in devices]})
    meter = Meter([device.uuid for device in devices], [device.bus for device in devices])
    for _ in sys.stdin:
        _write(replies, meter.sample())


class Meter:
    """Measures devices. NVML is loaded for the first sample, so that nothing else waits for it."""

    def __init__(self, uuids: List[str], buses: List[str]) -> None:
        self._uuids = uuids
        self._buses = buses
        self._nvml: Optional[nvml.Nvml] = None

    def sample(self) -> Dict[str, Any]:
        """Return a sample of each device that can be measured, by UUID."""
        try:
            if self._nvml is None:
                self._nvml = nvml.Nvml()
            samples = {u: self._nvml.sample(u, b) for u, b in zip(self._uuids, self._buses)}
        except nvml.NvmlError as error:
            return {"samples": {}, "error": str(error)}
        return {"samples": samples}


def _write(replies: TextIO, reply: Dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()
