"""Asks device_scale for tensors that lie in memory of the device, of this process: `python3 shared_memory_client.py [HOST:PORT]`.

It needs `tritonclient[http,cuda]`, and a server with `--allow-client-shm=true` that sees the same device.
"""

import sys

import numpy as np
import tritonclient.http as http
import tritonclient.utils.cuda_shared_memory as cuda


def main():
    client = http.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
    x = np.arange(1 << 20, dtype=np.float32)
    source = cuda.create_shared_memory_region("source", x.nbytes, 0)
    target = cuda.create_shared_memory_region("target", x.nbytes, 0)
    try:
        for name, region in (("source", source), ("target", target)):
            client.register_cuda_shared_memory(name, cuda.get_raw_handle(region), 0, x.nbytes)
        given = http.InferInput("X", [len(x)], "FP32")
        given.set_shared_memory("source", x.nbytes)
        wanted = http.InferRequestedOutput("Y")
        wanted.set_shared_memory("target", x.nbytes)
        for turn in range(1, 4):
            cuda.set_shared_memory_region(source, [x * turn])
            for model, factor in (("device_scale", 2), ("device_ensemble", 4)):
                client.infer(model, [given], outputs=[wanted])
                got = cuda.get_contents_as_numpy(target, np.float32, [len(x)])
                if not np.array_equal(got, x * turn * factor):
                    sys.exit(f"example error: {model} answers {got[:4]}, want {(x * turn * factor)[:4]}")
        client.unregister_cuda_shared_memory()
        if client.get_cuda_shared_memory_status():
            sys.exit("example error: regions are left")
    finally:
        cuda.destroy_shared_memory_region(source)
        cuda.destroy_shared_memory_region(target)
    print("PASS: gpu_models, shared memory")


if __name__ == "__main__":
    main()
