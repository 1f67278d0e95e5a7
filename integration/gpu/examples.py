"""Serves examples/gpu_models with bin/nereid and runs their client: `python3 integration/gpu/examples.py [BINARY]`."""

import subprocess
import sys
from importlib.util import find_spec

from server import ROOT, Server, check, failed


def ask(server, client, turn):
    command = [sys.executable, str(ROOT / "examples" / "gpu_models" / client), "127.0.0.1:%d" % server.http]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    check("%s, turn %d" % (client, turn), done.returncode == 0, done.stdout.strip()[-2000:])


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    server = Server(binary, str(ROOT / "examples" / "gpu_models"), ["--allow-client-shm=true"])
    try:
        for turn in range(3):
            ask(server, "client.py", turn)
        if find_spec("tritonclient") is None:
            print("there is no tritonclient: the client with memory of its own on the device is left out")
        else:
            for turn in range(2):
                ask(server, "shared_memory_client.py", turn)
    finally:
        server.end()
    if failed:
        print(server.log)
        sys.exit(1)


if __name__ == "__main__":
    main()
