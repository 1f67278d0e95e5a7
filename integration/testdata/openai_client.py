"""Uses the OpenAI endpoint through the package openai.

openai_client.py <http host:port> <gRPC host:port> <base URL>
"""

import asyncio
import json
import sys

import httpx
import openai

URL = sys.argv[3]
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60)

names = [m.id for m in client.models.list()]
assert names == ["llm", "plain", "tensorrt"], names
model = client.models.retrieve("llm")
assert model.owned_by == "Triton Inference Server" and model.created > 0, model


def refused(kind, text, call, **arguments):
    try:
        call(**arguments)
    except kind as e:
        assert text in e.message and text in json.dumps(e.body, ensure_ascii=False), (e.message, e.body)
        return e
    raise AssertionError(f"not refused: {text}")


# Token counts.
reply = client.completions.create(model="llm", prompt="count 2", logprobs=1)
known = reply.choices[0].logprobs
assert known.tokens == ["0 1 "] and known.token_logprobs == [-0.5] and known.top_logprobs == [{"0 1 ": -0.5}], known
pieces = [c.choices[0].logprobs for c in client.completions.create(model="llm", prompt="count 3", logprobs=1, stream=True)]
assert [p.text_offset for p in pieces if p] == [[0], [2], [4]], pieces

# Inputs of a vLLM model.
reply = client.completions.create(model="llm", prompt="echo")
assert reply.object == "text_completion" and reply.id.startswith("cmpl-"), reply
assert reply.choices[0].finish_reason == "stop" and reply.model == "llm"
assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (5, 1, 6)
sent = json.loads(reply.choices[0].text)
assert sent == {
    "text_input": "echo",
    "stream": False,
    "exclude_input_in_output": True,
    "return_logprobs": False,
    "return_num_input_tokens": True,
    "return_num_output_tokens": True,
    "sampling_parameters": '{"frequency_penalty": 0, "ignore_eos": false, "n": 1, "presence_penalty": 0, '
    '"temperature": 1, "top_p": 1, "max_tokens": 21}',
}, sent
reply = client.completions.create(
    model="llm", prompt="echo \u00e9 \U0001f600", max_tokens=7, seed=-3, stop=["a", "\u00fc"], temperature=0.25, top_p=1, echo=True,
    user="me", extra_body={"min_tokens": 2, "ignore_eos": True},
)
sent = json.loads(reply.choices[0].text)
assert sent["text_input"] == "echo \u00e9 \U0001f600" and not sent["exclude_input_in_output"]
assert sent["sampling_parameters"] == (
    '{"frequency_penalty": 0, "ignore_eos": true, "min_tokens": 2, "n": 1, "presence_penalty": 0, "seed": -3, '
    '"stop": ["a", "\\u00fc"], "temperature": 0.25, "top_p": 1.0, "max_tokens": 7}'
), sent["sampling_parameters"]

# Inputs of a TensorRT-LLM model.
reply = client.completions.create(model="tensorrt", prompt="p" * 100_000, max_tokens=7, seed=3, stop=["a", "bc"], temperature=0.25)
sent = json.loads(reply.choices[0].text)
assert reply.usage is None
assert sent.pop("text_input") == ["object", [1, 1], ["p" * 100_000]]
assert sent == {
    "stream": ["bool", [1, 1], [False]],
    "max_tokens": ["int32", [1, 1], [7]],
    "stop_words": ["object", [1, 2], ["a", "bc"]],
    "top_p": ["float32", [1, 1], [1.0]],
    "temperature": ["float32", [1, 1], [0.25]],
    "frequency_penalty": ["float32", [1, 1], [0.0]],
    "presence_penalty": ["float32", [1, 1], [0.0]],
    "seed": ["uint64", [1, 1], [3]],
    "exclude_input_in_output": ["bool", [1, 1], [True]],
    "return_num_input_tokens": ["bool", [1, 1], [True]],
    "return_num_output_tokens": ["bool", [1, 1], [True]],
}, sent
chunks = list(client.completions.create(model="tensorrt", prompt="p", stream=True))
assert [c.choices[0].finish_reason for c in chunks] == ["stop"]

# Streams.
for n in (0, 1, 3, 1000):
    chunks = list(client.completions.create(model="llm", prompt=f"count {n}", stream=True))
    assert "".join(c.choices[0].text for c in chunks) == "".join(f"{i} " for i in range(n))
    assert [c.choices[0].finish_reason for c in chunks] == [None] * n + ["stop"]
    assert len({(c.id, c.created) for c in chunks}) == 1 and all(c.usage is None for c in chunks)
    assert len(chunks) == n + 1
chunks = list(client.completions.create(model="llm", prompt="count 3", stream=True, stream_options={"include_usage": True}))
assert chunks[-1].choices == [] and chunks[-1].usage.model_dump(exclude_none=True) == {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "total_tokens": 8,
}
assert all(c.usage is None for c in chunks[:-1])

# The bytes on the wire.
with httpx.stream("POST", URL + "/completions", json={"model": "llm", "prompt": "count 1", "stream": True}, timeout=60) as raw:
    assert raw.headers["content-type"] == "text/event-stream; charset=utf-8", raw.headers
    events = raw.read().decode().split("\n\n")
assert events[-2:] == ["data: [DONE]", ""] and len(events) == 4, events
first = json.loads(events[0].removeprefix("data: "))
assert list(first) == ["id", "choices", "created", "model", "system_fingerprint", "object", "usage"], first

# Errors of the model: before the first event, and after one.
refused(openai.InternalServerError, "no more \u00fc", client.completions.create, model="llm", prompt="fail 0")
refused(openai.InternalServerError, "no more \u00fc", client.completions.create, model="llm", prompt="fail 0", stream=True)
got = []
try:
    for chunk in client.completions.create(model="llm", prompt="fail 2", stream=True):
        got.append(chunk.choices[0].text)
    raise AssertionError("the stream has ended well")
except openai.APIError as e:
    assert "no more \u00fc" in e.message, e
assert got == ["0 ", "1 "], got

# Rejected requests.
complete = client.completions.create
e = refused(openai.BadRequestError, "Unknown model: none", complete, model="none", prompt="p")
assert e.code == "model_not_found" and e.type == "invalid_request_error"
refused(openai.NotFoundError, "Unknown model: none", client.models.retrieve, model="none")
e = refused(openai.UnprocessableEntityError, "Input should be less than or equal to 2", complete, model="llm", prompt="p", temperature=3)
assert e.param == "temperature"
refused(openai.UnprocessableEntityError, "Extra inputs are not permitted", complete, model="llm", prompt="p", extra_body={"more": 1})
refused(openai.BadRequestError, "prompt must be non-empty", complete, model="llm", prompt="")
refused(openai.BadRequestError, "only single string input is supported", complete, model="llm", prompt=["a", "b"])
refused(openai.BadRequestError, "Received n=2, but only single choice (n=1) is currently supported", complete, model="llm", prompt="p", n=2)
refused(openai.BadRequestError, "`stream_options` can only be used", complete, model="llm", prompt="p", stream_options={})
refused(openai.BadRequestError, "Model 'plain' has no input 'text_input' for a prompt", complete, model="plain", prompt="p")
refused(openai.InternalServerError, "Python integer -1 out of bounds for uint64", complete, model="tensorrt", prompt="p", seed=-1)
refused(openai.InternalServerError, "Unknown tokenizer", client.chat.completions.create, model="llm", messages=[{"role": "user", "content": "p"}])
raw = httpx.post(URL + "/completions", content=b"{", headers={"Content-Type": "application/json"})
assert raw.status_code == 422 and raw.json()["detail"][0]["type"] == "json_invalid", raw.text
raw = httpx.post(URL + "/completions", json={"prompt": "p"})
assert raw.json()["detail"] == [{"type": "missing", "loc": ["body", "model"], "msg": "Field required", "input": {"prompt": "p"}}], raw.text
for chunked in (False, True):
    many = [b'{"model": "llm", "prompt": "', b"x" * (64 << 20), b'"}']
    raw = httpx.post(URL + "/completions", content=iter(many) if chunked else b"".join(many), timeout=60)
    assert raw.status_code == 413 and raw.json()["error"]["code"] == "content_too_large", raw.text

# Embeddings, which the package requests in base64.
reply = client.embeddings.create(model="llm", input="text")
assert [round(x, 9) for x in reply.data[0].embedding] == [0.5, -1, 2e-05] and reply.usage.prompt_tokens == 5, reply
assert client.embeddings.create(model="llm", input="text", encoding_format="float").data[0].embedding == [0.5, -1, 2e-05]
refused(openai.BadRequestError, "do not support embedding requests", client.embeddings.create, model="tensorrt", input="text")


async def several():
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60) as client:

        async def one(n):
            stream = await client.completions.create(model="llm", prompt=f"count {n}", stream=True)
            return len("".join([c.choices[0].text async for c in stream]).split())

        return await asyncio.gather(*(one(n) for n in range(40)))


assert asyncio.run(several()) == list(range(40))
