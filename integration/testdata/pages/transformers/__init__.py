"""Stands in for transformers: a model that knows one story. Calls and their order are those of the real library, which
generates in the thread of `generate` and passes tokens to a streamer.
"""

import queue


class Encoding(dict):
    def to(self, device):
        assert device == "cpu", device
        return self


class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, checkpoint):
        assert checkpoint.endswith("/weights"), checkpoint
        return cls()

    def __call__(self, text, return_tensors):
        assert return_tensors == "pt"
        return Encoding(input_ids=text.split())


class StoppingCriteria:
    pass


class TextIteratorStreamer:
    def __init__(self, tokenizer, skip_prompt, skip_special_tokens):
        assert skip_prompt and skip_special_tokens
        self.queue = queue.Queue()

    def end(self):
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


class AutoModelForCausalLM:
    device = "cpu"

    @classmethod
    def from_pretrained(cls, checkpoint):
        assert checkpoint.endswith("/weights"), checkpoint
        return cls()

    def to(self, device):
        return self

    def generate(self, input_ids, streamer, max_new_tokens, do_sample, stopping_criteria):
        assert not do_sample
        for word in "there was a princess who lived in a tower".split()[:max_new_tokens]:
            streamer.queue.put(word + " ")
            if any(stop(input_ids, None) for stop in stopping_criteria):
                break
        streamer.end()
