"""Starts a template that forks stubs: `python3 -u DIR/nereid_template --fd=N PADDING`."""

import os
import sys

if sys.version_info < (3, 8):
    sys.exit("stubs need Python 3.8 or newer, but %s is Python %d.%d" % ((sys.executable,) + sys.version_info[:2]))

# See triton_python_backend_stub/__main__.py.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pb_stub import template  # noqa: E402  # found only now

template.command(sys.argv)
