"""Configs of models: read from config.pbtxt and completed with the defaults that models use."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

#: Names of repeated fields.
_LISTS = frozenset(
    (
        "agents", "batch_input", "batch_output", "bool_false_true", "control", "control_input", "dims",
        "cpu_execution_accelerator", "fp32_false_true", "gpu_execution_accelerator", "gpus", "graph_spec",
        "initial_state", "input", "instance_group", "int32_false_true", "model_warmup", "op_library_filename", "output",
        "preferred_batch_size", "profile", "resources", "secondary_devices", "shape", "source_input", "state", "step",
        "target_name", "versions",
    )
)  # fmt: skip
#: Names of map fields, whose entries have a `key` and a `value`.
_MAPS = frozenset(
    (
        "cc_model_filenames", "input_map", "inputs", "metric_tags", "output_map", "parameters",
        "priority_queue_policy",
    )
)  # fmt: skip

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*(?:(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[\w.+-]+)|(?P<mark>[]{}[<>:,;]))"""
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class BadConfig(ValueError):
    """The text is not a valid config.pbtxt; the message says where."""


def parse(text: str) -> dict[str, Any]:
    """Parse a config.pbtxt. Enumerations stay names, and only the syntax is checked."""
    tokens = _Tokens(text)
    return _fields(tokens, "")


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self.next = ("", "")
        self.advance()

    def _split(self) -> Iterator[tuple[str, str]]:
        at = 0
        while True:
            match = _TOKEN.match(self._text, at)
            if match is None:
                rest = re.sub(r"(?:\s|#[^\n]*)*", "", self._text[at:], count=1)
                if rest:
                    line = self._text.count("\n", 0, len(self._text) - len(rest)) + 1
                    raise BadConfig(f"config.pbtxt line {line}: {rest[:20]!r} is not text format")
                while True:
                    yield "", ""
            at = match.end()
            self.line = self._text.count("\n", 0, match.start(match.lastgroup or 0)) + 1
            yield str(match.lastgroup), match.group(str(match.lastgroup))

    def advance(self) -> tuple[str, str]:
        token, self.next = self.next, next(self._tokens)
        return token

    def take(self, *marks: str) -> str:
        """Take the next token if it is one of the marks."""
        if self.next[0] == "mark" and self.next[1] in marks:
            return self.advance()[1]
        return ""

    def want(self, mark: str) -> None:
        if not self.take(mark):
            raise self.surprise(repr(mark))

    def surprise(self, wanted: str) -> BadConfig:
        found = repr(self.next[1]) if self.next[0] else "the end"
        return BadConfig(f"config.pbtxt line {self.line}: found {found}, want {wanted}")


def _fields(tokens: _Tokens, end: str) -> dict[str, Any]:
    """Parse the fields of a message up to its closing bracket, or the end of the text."""
    fields: dict[str, Any] = {}
    while not (tokens.take(end) if end else not tokens.next[0]):
        if tokens.next[0] != "word":
            raise tokens.surprise("the name of a field")
        name = tokens.advance()[1]
        tokens.take(":")
        _set(fields, name, _value(tokens))
        tokens.take(",", ";")
    return fields


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    if name in _MAPS:
        entries = value if isinstance(value, list) else [value]
        fields.setdefault(name, {}).update({str(entry["key"]): entry["value"] for entry in entries})
    elif name in _LISTS and isinstance(value, list):
        fields.setdefault(name, []).extend(value)
    elif name in _LISTS:
        fields.setdefault(name, []).append(value)
    else:
        fields[name] = value


def _value(tokens: _Tokens) -> Any:
    if tokens.take("{"):
        return _fields(tokens, "}")
    if tokens.take("<"):
        return _fields(tokens, ">")
    if tokens.take("["):
        values: list[Any] = []
        while not tokens.take("]"):
            values.append(_value(tokens))
            tokens.take(",")
        return values
    kind = tokens.next[0]
    if kind == "text":
        text = b""
        while tokens.next[0] == "text":
            text += _ESCAPE.sub(_unescape, tokens.advance()[1][1:-1].encode())
        return text.decode("utf-8", "replace")
    if kind == "word":
        return _scalar(tokens.advance()[1])
    raise tokens.surprise("a value")


def _unescape(match: re.Match[bytes]) -> bytes:
    what = match.group(1)
    if what[:1] == b"x" and len(what) > 1:
        return bytes((int(what[1:], 16),))
    if what.isdigit():
        return bytes((int(what, 8) & 255,))
    return _LETTERS.get(what, what)


def _scalar(word: str) -> Any:
    if word in ("true", "True", "t"):
        return True
    if word in ("false", "False", "f"):
        return False
    for read in (lambda: int(word, 0), lambda: int(word), lambda: float(word.rstrip("fF"))):
        try:
            return read()
        except ValueError:
            pass
    return word


_INPUT = {
    "name": "", "data_type": "TYPE_INVALID", "format": "FORMAT_NONE", "dims": [], "is_shape_tensor": False,
    "allow_ragged_batch": False, "optional": False,
}  # fmt: skip
_OUTPUT = {"name": "", "data_type": "TYPE_INVALID", "dims": [], "label_filename": "", "is_shape_tensor": False}
_CONFIG: dict[str, Any] = {
    "name": "", "platform": "", "backend": "python", "runtime": "", "version_policy": {"latest": {"num_versions": 1}},
    "max_batch_size": 0, "input": [], "output": [], "batch_input": [], "batch_output": [],
    "optimization": {"priority": "PRIORITY_DEFAULT"}, "instance_group": [], "default_model_filename": "model.py",
    "cc_model_filenames": {}, "metric_tags": {}, "parameters": {}, "model_warmup": [],
}  # fmt: skip


def fill(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Complete a config with a server's defaults. The result shares nothing with the argument."""
    filled = {**_copy(_CONFIG), **_copy(dict(config))}
    filled["name"] = filled["name"] or name
    filled["input"] = [{**_copy(_INPUT), **entry} for entry in filled["input"]]
    filled["output"] = [{**_copy(_OUTPUT), **entry} for entry in filled["output"]]
    filled["parameters"] = {
        key: value if isinstance(value, dict) else {"string_value": str(value)}
        for key, value in filled["parameters"].items()
    }
    return filled


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value


def instance_name(config: Mapping[str, Any]) -> str:
    """Return the name of the first instance of a model."""
    groups = config["instance_group"]
    if not groups:
        return f"{config['name']}_0"
    return f"{groups[0].get('name') or config['name'] + '_0'}_0"


def decoupled(config: Mapping[str, Any]) -> bool:
    return bool(config.get("model_transaction_policy", {}).get("decoupled", False))
