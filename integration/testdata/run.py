"""Runs a script and exits without finalizing the interpreter.

A gRPC client that still exists at interpreter exit may wait forever for a lock of a library thread, because such
threads are stopped at an arbitrary point.
"""

import os
import runpy
import sys
import traceback

sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
status = 0
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as error:
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    status = error.code if isinstance(error.code, int) else int(error.code is not None)
except BaseException:
    traceback.print_exc()
    status = 1
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
