"""Ends itself while it is imported."""

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
