"""Starts the stub of one instance: `python3 -u DIR/triton_python_backend_stub INSTANCE --fds=…`.

Written so that any Python reads it, to say clearly which ones are too old.
"""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("the model needs Python 3.8 or newer, but %s is Python %d.%d" % ((sys.executable,) + sys.version_info[:2]))

# Python has put this directory first; the modules to be found are beside it. Ours goes first until all of it is
# imported, so that no installed package of the same name comes in between.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import pb_stub  # noqa: E402  # only now it can be found

pb_stub.command(sys.argv)
