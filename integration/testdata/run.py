"""Runs a script and ends without taking the interpreter down.

A client of gRPC that is still there when the interpreter goes may wait for a lock for ever which a thread of the library
had: such threads are ended wherever they are.
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
