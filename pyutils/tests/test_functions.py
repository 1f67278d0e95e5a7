# ruff: noqa: ARG001, ARG002, F821
# mypy: disable-error-code="name-defined,type-arg,attr-defined,valid-type,misc,return-value,import-not-found"
"""nereid.model: annotations, options, values, and the models that nereid.build writes."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional

import numpy as np
import numpy.typing as npt
import pytest
from nereid import Array, InputError, kinds, model
from nereid.build import config_of
from nereid.functions import Mistake, models
from nereid_testing import Server, outputs


@pytest.fixture(autouse=True)
def _no_models() -> Iterator[None]:
    models.clear()
    yield
    models.clear()


def fields(function: Any) -> Dict[str, Any]:
    signature = models[model(function).__name__].signature
    return {f.name: (f.kind.type, f.kind.dims, f.optional) for f in signature.inputs}


def test_annotations_are_inputs() -> None:
    def f(
        a: str,
        b: bytes,
        c: int,
        d: float,
        e: bool,
        f: List[int],
        g: List[List[str]],
        h: Array["float32", 2, -1],
        i: npt.NDArray[np.int8],
        j: Optional[str],
        k: int = 3,
        m: Optional[Array["uint8"]] = None,
    ) -> str:
        return ""

    assert fields(f) == {
        "a": ("TYPE_STRING", (1,), False),
        "b": ("TYPE_STRING", (1,), False),
        "c": ("TYPE_INT64", (1,), False),
        "d": ("TYPE_FP64", (1,), False),
        "e": ("TYPE_BOOL", (1,), False),
        "f": ("TYPE_INT64", (-1,), False),
        "g": ("TYPE_STRING", (-1, -1), False),
        "h": ("TYPE_FP32", (2, -1), False),
        "i": ("TYPE_INT8", (-1,), False),
        "j": ("TYPE_STRING", (1,), True),
        "k": ("TYPE_INT64", (1,), True),
        "m": ("TYPE_UINT8", (-1,), True),
    }


def test_a_decorated_function_stays_a_function() -> None:
    @model(max_batch_size=4, instances=2)
    def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}! " * times

    assert greet("Ada", times=2) == "Hello Ada! Hello Ada! "


def test_the_config_has_all_options() -> None:
    @model(name="other", max_batch_size=4, instances=2, max_queue_delay_microseconds=50)
    def f(name: str, times: int = 1) -> Array["float32", 2, 3]:
        """Says "a\\b".

        Twice.
        """
        return np.zeros((2, 3), np.float32)

    assert config_of(models["other"]) == textwrap.dedent(
        """\
        backend: "python"
        max_batch_size: 4
        input [
          { name: "name" data_type: TYPE_STRING dims: [ 1 ] },
          { name: "times" data_type: TYPE_INT64 dims: [ 1 ] optional: true }
        ]
        output [
          { name: "output" data_type: TYPE_FP32 dims: [ 2, 3 ] }
        ]
        instance_group [ { count: 2 kind: KIND_CPU } ]
        dynamic_batching { max_queue_delay_microseconds: 50 }
        parameters { key: "description" value: { string_value: "Says \\"a\\\\b\\".\\n\\nTwice." } }
        """
    )


def test_generators_are_decoupled_and_classes_have_names() -> None:
    @model
    def count(to: int) -> Iterator[int]:
        yield from range(to)

    @model
    async def words(text: str) -> AsyncIterator[str]:
        for word in text.split():
            yield word

    @model
    class HTTPTagger2:
        def __call__(self, text: str) -> List[str]:
            return []

    assert list(models) == ["count", "words", "http_tagger2"]
    assert [m.signature.decoupled for m in models.values()] == [True, True, False]
    assert "decoupled: true" in config_of(models["words"])


def _without_annotation(x) -> int:  # type: ignore[no-untyped-def]
    return 1


def _without_result(x: int):  # type: ignore[no-untyped-def]
    return 1


def _with_dict(x: dict) -> int:
    return 1


def _with_list(x: list) -> int:
    return 1


def _with_many(*xs: int) -> int:
    return 1


def _without_parameters() -> int:
    return 1


def _with_reserved_name(id: str) -> int:  # noqa: A002
    return 1


def _with_optional_result(x: int) -> Optional[int]:
    return x


def _with_unknown_name(x: "Nothing") -> int:
    return 1


def _wrong_generator(x: int) -> int:
    yield x


@dataclasses.dataclass
class Point:
    x: float
    y: float = 2.0
    label: Optional[str] = None

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError(f"x is {self.x}, want 0 or more")


def _with_two_records(p: Point, q: Point) -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_without_annotation, "_without_annotation: parameter x has no annotation: write x: and a type"),
        (_without_result, "its result has no annotation: write -> and a type behind the parameters"),
        (_with_dict, "parameter x: there is no tensor for dict: want str, bytes, int, float, bool, List[...], "),
        (_with_list, "parameter x: list says nothing about its elements"),
        (_with_many, "parameter *xs: int has no name for clients"),
        (_with_reserved_name, "parameter id has a name that requests use themselves: rename it"),
        (_with_optional_result, ": a response always has an output"),
        (_without_parameters, "it has no parameters: a model needs an input"),
        (_with_unknown_name, "its annotations cannot be read: NameError: name 'Nothing' is not defined"),
        (_wrong_generator, "it is a generator, but its result is int: want Iterator[...]"),
        (_with_two_records, "parameter p has several fields, so it must be the only parameter"),
    ],
)
def test_mistakes_name_the_place(function: Any, text: str) -> None:
    with pytest.raises(Mistake) as caught:
        model(function)
    assert text in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: ")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "a/b"}, "the name is 'a/b', want letters"),
        ({"max_batch_size": -1}, "max_batch_size is -1, want a number of at least 0"),
        ({"instances": 0}, "instances is 0, want a number of at least 1"),
        ({"instances": True}, "instances is True"),
        ({"batch": True}, "batch=True needs a max_batch_size"),
    ],
)
def test_wrong_options(options: Dict[str, Any], text: str) -> None:
    def f(x: int) -> int:
        return x

    with pytest.raises(Mistake, match=text.replace("/", ".")):
        model(**options)(f)


def test_two_models_with_one_name() -> None:
    model(name="m")(_first)
    model(name="m")(_first)  # the file was read again
    with pytest.raises(Mistake, match="there is another model with that name"):
        model(name="m")(_second)


def test_two_functions_with_one_name() -> None:
    def make() -> Any:
        def f(x: int) -> int:
            return x

        return f

    def other() -> Any:
        def f(x: int) -> int:
            return x

        f.__qualname__ = make().__qualname__
        return f

    model(make())
    model(make())
    with pytest.raises(Mistake, match="f: there is another model with that name"):
        model(other())


def test_classes_that_cannot_be_models() -> None:
    class Needs:
        def __init__(self, x: int) -> None:
            pass

        def __call__(self, x: int) -> int:
            return x

    class Waits:
        async def setup(self) -> None:
            pass

        def __call__(self, x: int) -> int:
            return x

    class Nothing:
        pass

    for one, text in (
        (Needs, "needs: the class is made without arguments: missing a required argument: 'x'"),
        (Waits, "waits: setup is a coroutine, and nothing awaits it"),
        (Nothing, "want a function, or a class with the method __call__"),
    ):
        with pytest.raises(Mistake, match=text):
            model(one)


def test_arrays_of_a_batch_cannot_be_none() -> None:
    with pytest.raises(Mistake, match="parameter x is an array, which cannot be None"):

        @model(max_batch_size=2, batch=True)
        def f(x: Optional[float] = None) -> float:
            return 1


def test_coroutine_functions_overlap() -> None:
    @model
    async def f(x: int) -> int:
        return x

    assert 'key: "ASYNC_EXECUTE_OVERLAP" value: { string_value: "1000" }' in config_of(models["f"])


def _first(x: int) -> int:
    return x


def _second(x: int) -> int:
    return x


@pytest.mark.parametrize("item", ["nothing", ("float32", 0), ("float32", "x"), ("float32", -2), "object", "complex64"])
def test_wrong_arrays(item: Any) -> None:
    with pytest.raises(TypeError, match="nereid.Array: "):
        kinds.Array[item]


@pytest.mark.parametrize(
    ("annotation", "value", "error"),
    [
        (str, 3, "got int, want str"),
        (int, True, "got bool, want int"),
        (int, 1.5, "got float, want int"),
        (bool, 1, "got int, want bool"),
        (List[int], 3, "got int, want list"),
        (List[int], ["a"], "got str, want int"),
        (List[List[int]], [[1], [2, 3]], "got lists of 1 and 2 elements"),
        (Array["float32", 2], [1.0], r"got the shape \[1\], want \[2\]"),
        (Array["int32", 2], np.array([1.5, 2]), "got an array of float64, want int32"),
        (Array["float32", 2], ["a", "b"], "got an array of <U1, want float32"),
    ],
)
def test_wrong_results(annotation: Any, value: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        kinds.kind_of(annotation).write(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "ä"),
        (bytes, b"\xff"),
        (int, -5),
        (float, 1.5),
        (bool, True),
        (List[float], []),
        (List[str], ["a", ""]),
        (List[List[int]], [[1, 2], [3, 4]]),
        (List[List[int]], []),
    ],
)
def test_values_survive(annotation: Any, value: Any) -> None:
    kind = kinds.kind_of(annotation)
    array = kind.write(value)
    assert (array.dtype, array.ndim) == (kind.dtype, len(kind.dims))
    if array.dtype == object:  # a server hands out bytes
        assert all(isinstance(one, bytes) for one in array.reshape(-1))
    assert kind.read(array) == value


def test_texts_must_be_utf8() -> None:
    with pytest.raises(InputError, match="want UTF-8 text, found an invalid byte at 2"):
        kinds.kind_of(str).read(np.array([b"ab\xff"], object))


APP = '''
import asyncio
from dataclasses import dataclass
from typing import AsyncIterator, Iterator, List, Optional

import numpy as np
import nereid
from helping import hello


@nereid.model(max_batch_size=8, instances=2)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    if not name:
        raise nereid.InputError("the name is empty")
    return hello(name) * times


@nereid.model
def count(to: int) -> Iterator[int]:
    yield from range(to)
    if to > 5:
        raise RuntimeError("too many")


@nereid.model
async def words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word


@nereid.model(max_batch_size=4)
async def later(x: float) -> float:
    await asyncio.sleep(0)
    return x + 1


@nereid.model(max_batch_size=8, batch=True)
def score(x: nereid.Array["float32", 2], label: str = "none", scale: float = 1.0) -> nereid.Array["float32", 2]:
    assert x.ndim == 2 and len(label) == len(x) and scale.shape == (len(x),)
    return x * scale[:, None] + np.array([[len(one)] for one in label])


@nereid.model(max_batch_size=8, batch=True)
def wrong(x: int) -> int:
    return [1] * 7


@nereid.model(max_batch_size=8, batch=True)
def notes(x: int, note: Optional[str] = None) -> str:
    return [1 if number < 0 else str(one) for number, one in zip(x, note)]


@dataclass
class Point:
    x: float
    y: float = 2.0
    label: Optional[str] = None

    def __post_init__(self):
        if self.x < 0:
            raise ValueError(f"x is {self.x}, want 0 or more")


@dataclass
class Summary:
    total: float
    labels: Optional[List[str]]


@nereid.model
def summarize(p: Point) -> Summary:
    return Summary(p.x + p.y, None if p.label is None else [p.label, p.label])


@nereid.model
class Keeper:
    def setup(self) -> None:
        self.seen: List[int] = []

    def __call__(self, x: int) -> List[int]:
        self.seen.append(x)
        return self.seen

    def close(self) -> None:
        open(CLOSED, "w").close()
'''


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build APP with this Python. The folder of the file is gone afterwards."""
    folder = tmp_path_factory.mktemp("functions")
    source = folder / "source"
    source.mkdir()
    (source / "app.py").write_text(f"CLOSED = {str(folder / 'closed')!r}\n" + APP)
    (source / "helping.py").write_text("def hello(name):\n    return f'Hello {name}! '\n")
    made = json.loads(run_build(source / "app.py", folder / "models", "copy").stdout)
    assert made["models"] == ["greet", "count", "words", "later", "score", "wrong", "notes", "summarize", "keeper"]
    assert made["files"] == [str(source / "app.py"), str(source / "helping.py")]
    source.rename(folder / "away")
    return folder / "models"


def run_build(file: Path, output: Path, mode: str) -> "subprocess.CompletedProcess[str]":
    modules = str(Path(__file__).parent.parent)
    program = "import sys; sys.path[0] = sys.argv.pop(1); from nereid.build import main; sys.exit(main(*sys.argv[1:]))"
    command = [sys.executable, "-c", program, modules, str(file), str(output), mode, '{"taken": "/b.py"}']
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def ask(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a function that sends a request to a built model and returns its outputs, or a list of them."""
    # The models bring their own copy of nereid; here its modules are imported already.
    for name in ("app", "helping"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with Server() as server:
        loaded: Dict[str, Any] = {}

        def ask(name: str, inputs: Dict[str, Any]) -> Any:
            if name not in loaded:
                loaded[name] = server.load(repository / name)
            asked = loaded[name]
            if asked.decoupled:
                return [outputs(response) for response in asked.stream(inputs)]
            return outputs(asked.infer(inputs))

        yield ask


def text(*values: str) -> np.ndarray:
    return np.array([[value.encode()] for value in values], object)


def test_models_answer(ask: Any) -> None:
    assert ask("greet", {"name": text("Ada", "Bob")})["output"].tolist() == [[b"Hello Ada! "], [b"Hello Bob! "]]
    assert ask("greet", {"name": text("Ada"), "times": np.array([[2]])})["output"].tolist() == [[b"Hello Ada! Hello Ada! "]]
    assert ask("later", {"x": np.array([[1.0], [2.0]])})["output"].tolist() == [[2.0], [3.0]]
    assert ask("notes", {"x": np.array([[1], [2]])})["output"].tolist() == [[b"None"], [b"None"]]
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert ask("score", {"x": x})["output"].tolist() == [[5, 6], [7, 8]]
    assert ask("score", {"x": x, "label": text("", "a"), "scale": np.array([[1.0], [2.0]])})["output"].tolist() == [[1, 2], [7, 9]]
    assert {k: v.tolist() for k, v in ask("summarize", {"x": np.array([1.5])}).items()} == {"total": [3.5]}
    answer = ask("summarize", {"x": np.array([1.5]), "y": np.array([1.0]), "label": np.array([b"z"], object)})
    assert {k: v.tolist() for k, v in answer.items()} == {"total": [2.5], "labels": [b"z", b"z"]}


def test_streams(ask: Any) -> None:
    assert [one["output"].tolist() for one in ask("count", {"to": np.array([3])})] == [[0], [1], [2]]
    assert [one["output"].tolist() for one in ask("words", {"text": np.array([b"a b"], object)})] == [[b"a"], [b"b"]]


def test_classes_keep_state(ask: Any) -> None:
    assert ask("keeper", {"x": np.array([1])})["output"].tolist() == [1]
    assert ask("keeper", {"x": np.array([2])})["output"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "inputs", "error"),
    [
        ("notes", {"x": np.array([[1], [-1]])}, 'TypeError: output "output": got int, want str'),
        ("greet", {"name": text("Ada", "")}, "the name is empty"),
        ("greet", {"name": np.array([[b"\xff"]], object)}, 'input "name": want UTF-8 text, found an invalid byte at 0'),
        ("score", {"x": np.zeros((1, 2), np.float32), "label": np.array([[b"\xff"]], object)}, 'input "label": want UTF-8 text'),
        ("wrong", {"x": np.array([[1]])}, "ValueError: the function returned 7 results, want 1, one for each element"),
        ("summarize", {"x": np.array([-1.0])}, "x is -1.0, want 0 or more"),
    ],
)
def test_errors_reach_the_client(ask: Any, name: str, inputs: Dict[str, Any], error: str) -> None:
    with pytest.raises(Exception, match=error):
        ask(name, inputs)


def test_a_built_repository_is_closed(repository: Path) -> None:
    assert sorted(path.name for path in (repository / "greet" / "1").iterdir()) == ["app.py", "helping.py", "model.py", "nereid"]


def test_builds_change_only_what_differs(tmp_path: Path) -> None:
    file, output = tmp_path / "app.py", tmp_path / "models"
    file.write_text("import nereid\n@nereid.model\ndef f(x: int) -> int:\n    return x\n@nereid.model\ndef g(x: int) -> int:\n    return x\n")
    assert run_build(file, output, "refer").returncode == 0
    before = (output / "f" / "config.pbtxt").stat().st_mtime_ns
    file.write_text("import nereid\n@nereid.model\ndef f(x: int) -> int:\n    return x + 1\n")
    assert run_build(file, output, "refer").returncode == 0
    assert (output / "f" / "config.pbtxt").stat().st_mtime_ns == before
    assert [path.name for path in output.iterdir()] == ["f"]
    assert str(tmp_path) in (output / "f" / "1" / "model.py").read_text()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("import nereid\nimport nothere\n", 'app.py", line 2, in <module>\n    import nothere\nModuleNotFoundError: No module named \'nothere\''),
        ("import nereid\n@nereid.model\ndef taken(x: int) -> int:\n    return x\n", "app.py: /b.py also has a model taken: choose another name"),
        ("x = 1\n", "app.py: it has no model: write @nereid.model above a function"),
        ("def f(:\n", "SyntaxError"),
        ("import sys\nsys.exit(4)\n", "ended Python with status 4"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str, error: str) -> None:
    (tmp_path / "app.py").write_text(content)
    result = run_build(tmp_path / "app.py", tmp_path / "models", "copy")
    assert (result.returncode, result.stdout) == (1, "")
    assert error in result.stderr
    assert "importlib" not in result.stderr


def test_modules_that_are_imported_later(tmp_path: Path) -> None:
    for name, content in {
        "app.py": "import nereid\n@nereid.model\ndef f(x: int) -> int:\n    import lazy\n    from lib import deep\n    return x\n",
        "lazy.py": "import other\nimport numpy\n",
        "other.py": "",
        "lib/__init__.py": "",
        "lib/deep.py": "from . import near\nfrom .more.far import x\n",
        "lib/near.py": "def (",
        "lib/more/__init__.py": "",
        "lib/more/far.py": "x = 1\n",
        "lib/unused.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert run_build(tmp_path / "app.py", tmp_path / "models", "copy").returncode == 0
    version = tmp_path / "models" / "f" / "1"
    copied = {str(path.relative_to(version)) for path in version.rglob("*.py") if path.parent.name != "nereid"}
    deep = {"lib/__init__.py", "lib/deep.py", "lib/near.py", "lib/more/__init__.py", "lib/more/far.py"}
    assert copied == {"app.py", "lazy.py", "other.py", "model.py", *deep}


def test_a_config_of_other_annotations(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import nereid\n@nereid.model\ndef f(x: int) -> int:\n    return x\n")
    assert run_build(tmp_path / "app.py", tmp_path / "models", "refer").returncode == 0
    config = tmp_path / "models" / "f" / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_INT64", "TYPE_INT32"))
    sys.modules.pop("app", None)
    with Server() as server, pytest.raises(Exception, match="annotations of f and its config.pbtxt differ: build"):
        server.load(tmp_path / "models" / "f")


@pytest.mark.parametrize("name", ["json", "numpy", "nereid", "colorsys"])
def test_files_with_the_name_of_a_module(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    result = run_build(tmp_path / f"{name}.py", tmp_path / "models", "copy")
    assert f"{name}.py: its name hides the module {name}: rename the file" in result.stderr


def test_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "my-app.py").write_text("")
    assert "my-app.py: Python cannot import a file with this name" in run_build(tmp_path / "my-app.py", tmp_path, "copy").stderr


@pytest.mark.skipif(importlib.util.find_spec("PIL") is not None, reason="Pillow is installed")
def test_images_without_pillow() -> None:
    def f(image: kinds.Image) -> int:
        return 1

    with pytest.raises(Mistake, match="parameter image: images need Pillow: pip install pillow"):
        model(f)


@pytest.mark.skipif(importlib.util.find_spec("PIL") is None, reason="needs Pillow")
def test_images() -> None:
    from PIL import Image

    kind = kinds.kind_of(kinds.Image)
    assert isinstance(kind, type(kinds.kind_of(Image.Image)))
    array = kind.write(Image.new("RGB", (3, 2), "red"))
    assert (kind.read(array).size, array[0][:4]) == ((3, 2), b"\x89PNG")
    with pytest.raises(InputError, match="want an image, found 3 bytes that begin with 61 62 63$"):
        kind.read(np.array([b"abc"], object))
    with pytest.raises(TypeError, match="got int, want an image of Pillow"):
        kind.write(3)
