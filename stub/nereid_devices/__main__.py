"""Reports CUDA devices to the server: `python3 DIR/nereid_devices`.

Uses only the standard library.
"""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("this needs Python 3.8 or newer, but %s is Python %d.%d" % ((sys.executable,) + sys.version_info[:2]))

# See triton_python_backend_stub/__main__.py.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from nereid_devices import copies, helper  # noqa: E402  # found only now

if sys.argv[1:] == ["copy"]:
    copies.command()
else:
    helper.command()
