"""Programs that a model starts do not search the libraries of its execution environment."""

from __future__ import annotations

import os

import pytest
from pb_stub.activation import keep_libraries

OURS = "/env/lib:/env/lib"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"LD_LIBRARY_PATH": OURS + ":/server", "NEREID_LIBRARY_PATH": "/server"}, {"LD_LIBRARY_PATH": "/server"}),
        ({"LD_LIBRARY_PATH": OURS, "NEREID_LIBRARY_PATH": ""}, {}),
        ({"NEREID_LIBRARY_PATH": ""}, {}),
        ({"LD_LIBRARY_PATH": "/server"}, {"LD_LIBRARY_PATH": "/server"}),
        ({}, {}),
    ],
)
def test_libraries(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], want: dict[str, str]) -> None:
    for name in ("LD_LIBRARY_PATH", "NEREID_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    keep_libraries()
    assert {name: value for name, value in os.environ.items() if name.endswith("LIBRARY_PATH")} == want
