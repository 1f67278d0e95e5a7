"""Times that Python and numpy need on their own: floor.py STRINGS LENGTH PARAMETERS SECONDS

Prints medians in ns: numpy's conversion of that many strings into objects and back, with known lengths and with
lengths to be found, as in a stub; json reading that many parameters; json reading and writing them.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Callable

import numpy as np


def median(call: Callable[[], object], seconds: float) -> int:
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return sorted(times)[len(times) // 2]


strings, length, parameters = (int(word) for word in sys.argv[1:4])
seconds = float(sys.argv[4])

wide = f"S{length}"
lines = b"".join(b"%0*d" % (length, i) for i in range(strings))
text = json.dumps({f"parameter{i}": i if i % 2 else f"value {i}" for i in range(parameters)})
print(
    median(lambda: np.frombuffer(lines, wide).astype(object).astype(wide).tobytes(), seconds),
    median(lambda: np.frombuffer(lines, wide).astype(object).astype(np.bytes_).tobytes(), seconds),
    median(lambda: json.loads(text), seconds),
    median(lambda: json.dumps(json.loads(text)), seconds),
)
