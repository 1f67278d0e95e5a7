"""Infers over TLS with tritonclient.http and http.aio, and with tritonclient.grpc.

secure.py <http host:port> <gRPC host:port> <https host:port> <root> <client certificate> <client key>
"""

import asyncio
import ssl
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.http.aio as http_aio

GRPC, HTTPS, ROOT, CERT, KEY = sys.argv[2:7]
SMALL = np.arange(4, dtype=np.int32)
LARGE = np.arange(1 << 20, dtype=np.int32)


def inputs_of(package, array):
    tensor = package.InferInput("INPUT_INT32", array.shape, "INT32")
    tensor.set_data_from_numpy(array)
    return [tensor]


def check(result, array):
    assert np.array_equal(result.as_numpy("OUTPUT_INT32"), array)


def blocking():
    client = http.InferenceServerClient(
        HTTPS, ssl=True, insecure=False, ssl_options={"ca_certs": ROOT, "certfile": CERT, "keyfile": KEY}
    )
    for array in (SMALL, LARGE, SMALL):
        check(client.infer("identity_1", inputs_of(http, array)), array)
        check(client.infer("identity_1", inputs_of(http, array), request_compression_algorithm="gzip"), array)
    assert client.is_server_ready()


async def asynchronous():
    context = ssl.create_default_context(cafile=ROOT)
    context.load_cert_chain(CERT, KEY)
    async with http_aio.InferenceServerClient(HTTPS, ssl=True, ssl_context=context) as client:
        results = await asyncio.gather(*(client.infer("identity_1", inputs_of(http_aio, SMALL)) for _ in range(8)))
        for result in results:
            check(result, SMALL)


def remote():
    client = grpc.InferenceServerClient(GRPC, ssl=True, root_certificates=ROOT, private_key=KEY, certificate_chain=CERT)
    for array in (SMALL, LARGE):
        check(client.infer("identity_1", inputs_of(grpc, array)), array)


blocking()
asyncio.run(asynchronous())
remote()
