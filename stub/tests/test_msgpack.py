"""MessagePack as specified, and invalid MessagePack."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from pb_stub._msgpack import Malformed, pack, unpack

VALUES: list[tuple[Any, str]] = [
    (None, "c0"), (True, "c3"), (False, "c2"), (0, "00"), (127, "7f"), (128, "cc80"), (255, "ccff"), (256, "cd0100"),
    (65535, "cdffff"), (65536, "ce00010000"), (2**32, "cf0000000100000000"), (2**64 - 1, "cf" + "ff" * 8),
    (-1, "ff"), (-32, "e0"), (-33, "d0df"), (-129, "d1ff7f"), (-32769, "d2ffff7fff"), (-(2**31) - 1, "d3ffffffff7fffffff"),
    (1.5, "cb3ff8000000000000"), ("", "a0"), ("é", "a2c3a9"), ("x" * 32, "d920" + "78" * 32),
    ("x" * 256, "da0100" + "78" * 256), ("x" * 65536, "db00010000" + "78" * 65536), (b"\0", "c40100"),
    (b"x" * 256, "c50100" + "78" * 256), (b"x" * 65536, "c600010000" + "78" * 65536), ([], "90"), ([1, [2]], "92019102"),
    ([0] * 16, "dc0010" + "00" * 16), ([0] * 65536, "dd00010000" + "00" * 65536), ({}, "80"), ({"a": 1}, "81a16101"),
    (dict.fromkeys(map(str, range(10)), 0), "8a" + "".join(f"a13{n}00" for n in range(10))),
]  # fmt: skip


@pytest.mark.parametrize(("value", "encoded"), VALUES, ids=lambda value: repr(value)[:20])
def test_both_ways(value: Any, encoded: str) -> None:
    assert pack(value).hex() == encoded
    assert unpack(bytes.fromhex(encoded)) == value
    assert type(unpack(pack(value))) is type(value)


def test_large_map() -> None:
    value = {str(n): n for n in range(70000)}
    assert unpack(pack(value)) == value


def test_float32_is_decoded() -> None:
    assert unpack(bytes.fromhex("ca3fc00000")) == 1.5


def test_lone_surrogates_become_text() -> None:
    assert unpack(pack("a\udcff")) == "a\\udcff"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, object(), {1, 2}, 1j])
def test_values_that_have_no_form(value: Any) -> None:
    with pytest.raises(TypeError):
        pack(value)


@pytest.mark.parametrize(
    "encoded",
    ["", "c1", "cc", "cd00", "a2c3", "a1ff", "c402ff", "92", "9201", "81a161", "0000", "dd7fffffff", "df7fffffff", "8190c0",
     "d4", "91" * 40 + "c0", "81a1ff01"],
)  # fmt: skip
def test_malformed_texts_are_refused(encoded: str) -> None:
    with pytest.raises(Malformed):
        unpack(bytes.fromhex(encoded))


def test_every_short_input_is_a_value_or_malformed() -> None:
    for first in range(256):
        for second in range(256):
            for data in (bytes([first, second]), bytes([0x91, first, second]), bytes([0x81, 0xA0, first, second])):
                with contextlib.suppress(Malformed):
                    unpack(data)
