"""Cancels a request to a model that waits for another one."""

import os
import sys
import time

import numpy as np
import tritonclient.grpc as grpcclient

client = grpcclient.InferenceServerClient(sys.argv[2])
mark = sys.argv[3]
case = grpcclient.InferInput("CASE", [1], "BYTES")
case.set_data_from_numpy(np.array([f"wait:{mark}".encode()], np.object_))
call = client.async_infer("caller", [case], lambda result, error: None)
end = time.monotonic() + 60
while not os.path.exists(mark + ".begun"):
    assert time.monotonic() < end, "the model was not called"
    time.sleep(0.01)
call.cancel()
end = time.monotonic() + 60
while not os.path.exists(mark + ".cancelled"):
    assert time.monotonic() < end, "the model that was called has not heard of it"
    time.sleep(0.01)
client.close()
