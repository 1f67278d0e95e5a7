"""Starts the stub of one instance: `python3 -u DIR/triton_python_backend_stub INSTANCE --fds=…`.

Any Python can parse this file, so that old versions get a clear message.
"""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("the model needs Python 3.8 or newer, but %s is Python %d.%d" % ((sys.executable,) + sys.version_info[:2]))

# Python has put this directory first; the modules are in its parent. That comes first until all of
# it is imported, so that installed packages of the same name are not found.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import pb_stub  # noqa: E402  # found only now

pb_stub.command(sys.argv)
