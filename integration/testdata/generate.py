"""Reads streams of generate with client libraries for server-sent events.

generate.py <http host:port> <gRPC host:port>
"""

import asyncio
import json
import sys

import httpx
import httpx_sse
import requests

URL = f"http://{sys.argv[1]}/v2/models/dec/generate_stream"


def numbers(events):
    return [json.loads(event)["OUT"] for event in events]


with httpx.Client(timeout=60) as client:
    for n in (1, 3, 1000):
        with httpx_sse.connect_sse(client, "POST", URL, json={"N": n}) as source:
            assert numbers(event.data for event in source.iter_sse()) == list(range(n))
    with httpx_sse.connect_sse(client, "POST", URL, json={"N": 3, "fail": 1}) as source:
        assert [json.loads(event.data).get("error") for event in source.iter_sse()] == [None, "bad 1", None]


async def several():
    async with httpx.AsyncClient(timeout=60) as client:

        async def one(n):
            async with httpx_sse.aconnect_sse(client, "POST", URL, json={"N": n}) as source:
                return numbers([event.data async for event in source.aiter_sse()])

        for got, n in zip(await asyncio.gather(*(one(n) for n in range(1, 20))), range(1, 20)):
            assert got == list(range(n))


asyncio.run(several())

# Programs without such a library.
with requests.post(URL, json={"N": 5}, stream=True, timeout=60) as reply:
    assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    lines = [line[len("data: ") :] for line in reply.iter_lines(decode_unicode=True) if line.startswith("data: ")]
    assert numbers(lines) == list(range(5))
