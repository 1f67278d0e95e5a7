"""Serves models/gpu_examples by bin/nereid and runs their client: `python3 integration/gpu/examples.py [BINARY]`."""

import subprocess
import sys

from server import ROOT, Server, check, failed


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "bin" / "nereid")
    server = Server(binary, str(ROOT / "models" / "gpu_examples"))
    try:
        client = [sys.executable, str(ROOT / "models" / "gpu_examples" / "client.py"), "127.0.0.1:%d" % server.http]
        for turn in range(3):
            done = subprocess.run(client, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            check("examples, turn %d" % turn, done.returncode == 0, done.stdout.strip()[-300:])
    finally:
        server.end()
    if failed:
        print(server.log)
        sys.exit(1)


if __name__ == "__main__":
    main()
