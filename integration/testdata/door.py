"""Strings that are not UTF-8 in gRPC's metadata, with tritonclient: door.py <http host:port> <grpc host:port>"""

import sys

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

client = grpc.InferenceServerClient(sys.argv[2])
tensor = grpc.InferInput("IN0", [1, 4], "UINT8")
tensor.set_data_from_numpy(np.frombuffer(b"pass", np.uint8).reshape(1, 4))
try:
    client.infer("door", [tensor], headers={"x-data-bin": b"caf\xe9"})
    sys.exit("metadata that is not UTF-8 was forwarded")
except InferenceServerException as error:
    want = "parameter 'x-data-bin' is not valid UTF-8: \"caf\\xe9\""
    if error.status() != "StatusCode.INVALID_ARGUMENT" or want not in error.message():
        sys.exit(f"got {error}, want {want}")
result = client.infer("door", [tensor], headers={"x-data-bin": "café".encode()})
if bytes(result.as_numpy("OUT0")[0]) != b"fine":
    sys.exit(f"got {result.as_numpy('OUT0')}")
