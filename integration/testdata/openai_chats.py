"""Chats with the OpenAI endpoint through the package openai.

openai_chats.py <http host:port> <gRPC host:port> <base URL>
"""

import asyncio
import json
import sys

import httpx
import openai

URL = sys.argv[3]
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60)
chat = client.chat.completions.create


def refused(kind, text, **arguments):
    try:
        chat(**arguments)
    except kind as e:
        assert text in e.message, e.message
        return
    raise AssertionError(f"not refused: {text}")


def user(text):
    return [{"role": "user", "content": text}]


reply = chat(model="llm", messages=user(" echo \u00fc "), max_tokens=30, max_completion_tokens=3)
assert reply.object == "chat.completion" and reply.choices[0].message.role == "assistant" and reply.choices[0].finish_reason == "stop"
assert reply.usage.prompt_tokens == 5 and reply.choices[0].message.tool_calls is None, reply
sent = json.loads(reply.choices[0].message.content)
assert sent["text_input"] == "<s><|user|>echo \u00fc</s>\n<|assistant|>", sent
assert sent["sampling_parameters"] == (
    '{"frequency_penalty": 0, "ignore_eos": false, "n": 1, "presence_penalty": 0, "temperature": 0.7, "top_p": 1, "max_tokens": 3}'
), sent["sampling_parameters"]

tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}
messages = [
    {"role": "system", "content": "help"},
    {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "\u00fc", "at": [1, 2.5]}'}}],
    },
    {"role": "tool", "content": "sun", "tool_call_id": "1"},
]
sent = json.loads(chat(model="llm", messages=messages, tools=[tool], tool_choice="none").choices[0].message.content)
assert sent["text_input"] == (
    '<s><tools>{"type": "function", "function": {"description": null, "name": "weather", "parameters": {"type": "object", "properties": '
    '{"b": {}, "a": {}}}}}</tools><|system|>help</s>\n<|user|>one;two;</s>\n<|assistant|>[weather {"city": "\u00fc", "at": [1, 2.5]}]</s>\n'
    "<|tool|>sun</s>\n<|assistant|>"
), sent["text_input"]

# Another request format.
sent = json.loads(chat(model="tensorrt", messages=user("p")).choices[0].message.content)
assert sent["text_input"] == ["object", [1, 1], ["<s><|user|>p</s>\n<|assistant|>"]] and sent["temperature"][2] == [0.699999988079071], sent
assert "exclude_input_in_output" not in sent

# Streams.
chunks = list(chat(model="llm", messages=user("echo"), stream=True, stream_options={"include_usage": True}))
assert [c.object for c in chunks] == ["chat.completion.chunk"] * len(chunks)
assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
assert json.loads("".join(c.choices[0].delta.content for c in chunks[:-1]))["stream"]
assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None, None, "stop"]
assert chunks[-1].usage.completion_tokens == 1 and chunks[-1].choices == []

# The client's own helper for streams.
with client.chat.completions.stream(model="llm", messages=user("echo")) as stream:
    for event in stream:
        pass
    assert stream.get_final_completion().choices[0].message.content.startswith("{")

refused(openai.BadRequestError, "only text message is supported, but got image_url", model="llm", messages=[
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}])
refused(openai.UnprocessableEntityError, "List should have at least 1 item", model="llm", messages=[])
refused(openai.UnprocessableEntityError, "Input should be 'system', 'user'", model="llm", messages=[{"role": "other", "content": "x"}])
refused(openai.BadRequestError, "no role function", model="llm", messages=[{"role": "function", "name": "f", "content": "x"}])
refused(openai.BadRequestError, "calls of tools are not parsed", model="llm", messages=user("p"), tools=[tool])
refused(openai.BadRequestError, '"required" tool choice requires', model="llm", messages=user("p"), tool_choice="required")
reply = client.chat.completions.create(model="llm", messages=user("p"), logprobs=True)
(token,) = reply.choices[0].logprobs.content
assert token.token == reply.choices[0].message.content and token.logprob == -0.5 and token.bytes == list(token.token.encode()), token
refused(openai.BadRequestError, "logprobs are currently available only for the vLLM backend", model="tensorrt", messages=user("p"), logprobs=True)
refused(openai.BadRequestError, "`top_logprobs` can only be used", model="llm", messages=user("p"), top_logprobs=2)
messages[2]["tool_calls"][0]["function"]["arguments"] = "{"
refused(openai.InternalServerError, "Missing a name for object member.", model="llm", messages=messages)
raw = httpx.post(URL + "/chat/completions", json={"model": "llm", "messages": [{"role": "user", "content": 3}]})
assert raw.json()["detail"][0]["loc"] == ["body", "messages", 0, "content"], raw.text


async def several():
    async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0, timeout=60) as client:

        async def one(n):
            stream = await client.chat.completions.create(model="llm", messages=user(f"{n}"), stream=True)
            text = "".join([c.choices[0].delta.content async for c in stream])
            return json.loads(text)["text_input"]

        return await asyncio.gather(*(one(n) for n in range(40)))


assert asyncio.run(several()) == [f"<s><|user|>{n}</s>\n<|assistant|>" for n in range(40)]
