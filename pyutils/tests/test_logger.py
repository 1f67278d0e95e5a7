"""Logger, without and with a runtime."""

from __future__ import annotations

import re
from typing import Any, Iterator

import pytest
from c_python_backend_utils import runtime
from triton_python_backend_utils import Logger, get_model_dir


class Recorder(runtime.Alone):
    def __init__(self) -> None:
        self.lines: list[tuple[int, str, int, str]] = []

    def log(self, level: int, file: str, line: int, message: str) -> None:
        self.lines.append((level, file, line, message))

    def model_directory(self) -> str:
        return "/models/m/1"

    def outlet(self, _request: Any) -> None:
        return None


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    before = runtime.current()
    made = Recorder()
    runtime.install(made)
    yield made
    runtime.install(before)


def test_levels_are_passed_on(recorder: Recorder) -> None:
    Logger.log("a")
    Logger.log("b", Logger.WARNING)
    Logger.log(message="c", level=Logger.ERROR)
    Logger.log_info("d")
    Logger.log_warn("e")
    Logger.log_error("f")
    Logger.log_verbose("g")
    assert [(level, text) for level, _, _, text in recorder.lines] == [
        (0, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "e"), (2, "f"), (3, "g"),
    ]  # fmt: skip


def test_place_is_the_caller_s(recorder: Recorder) -> None:
    Logger.log_info("here")
    (_, file, line, _) = recorder.lines[0]
    assert file == "test_logger.py"
    assert line == test_place_is_the_caller_s.__code__.co_firstlineno + 1


def test_text_that_is_no_utf8_is_replaced(recorder: Recorder) -> None:
    Logger.log_info(b"raw \xff")
    Logger.log_info("é")
    assert [text for *_, text in recorder.lines] == ["raw \ufffd", "é"]


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("log", ()), ("log", (None,)), ("log", (5,)), ("log", ("a", 0)), ("log", ("a", None)), ("log_info", (None,)),
        ("log_warn", (5,)), ("log_error", ()), ("log_verbose", (None,)),
    ],
)  # fmt: skip
def test_type_errors(recorder: Recorder, call: str, args: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{call}\(\): incompatible function arguments\."):
        getattr(Logger, call)(*args)
    assert not recorder.lines


def test_level_is_an_enumeration() -> None:
    assert [int(level) for level in (Logger.INFO, Logger.WARNING, Logger.ERROR, Logger.VERBOSE)] == [0, 1, 2, 3]
    assert str(Logger.INFO) == "LogLevel.INFO" and type(Logger.INFO) is Logger.LogLevel


def test_cannot_be_made() -> None:
    with pytest.raises(TypeError, match=r"^c_python_backend_utils\.Logger: No constructor defined!$"):
        Logger()


def test_alone_it_writes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    Logger.log_warn("alone")
    assert re.fullmatch(
        r"W\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ test_logger\.py:\d+\]  alone\n", capfd.readouterr().err
    )  # fmt: skip


@pytest.mark.usefixtures("recorder")
def test_model_directory() -> None:
    assert get_model_dir() == "/models/m/1"


def test_model_directory_needs_a_server() -> None:
    with pytest.raises(RuntimeError):
        get_model_dir()
