"""Writes a model repository for the functions of a file: the program behind `nereid build`.

    python -m nereid.build FILE OUTPUT copy|refer [OTHERS]

With `copy`, the repository contains all code that it needs. With `refer`, its models import FILE from
where it is. OTHERS is a JSON object with the files of other models by the models' names. Prints a JSON
object: the models' names, the files that were read, and warnings. The exit code is 1 with a message for
people on stderr, and 3 if this Python lacks numpy.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

#: How many calls of a coroutine function run at once in an instance.
OVERLAP = 1000

MODEL = '''"""The model {name} of {file}. Made by `nereid build`: changes will be overwritten."""

import os
import sys

sys.path.insert(0, {directory})

from nereid.serving import serve  # noqa: E402

TritonPythonModel = serve({module!r}, {name!r})
'''


def _quoted(text: str) -> str:
    """Return a string of protobuf's text format."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"' + "".join(escapes.get(c, c if c >= " " else f"\\{ord(c):03o}") for c in text) + '"'


def config_of(model: Any) -> str:
    """Return the config.pbtxt of a model."""

    def tensors(kind: str, fields: Any) -> str:
        rows = [
            f"  {{ name: {_quoted(f.name)} data_type: {f.kind.type} dims: [ {', '.join(map(str, f.kind.dims))} ]"
            + (" optional: true }" if f.optional and kind == "input" else " }")
            for f in fields
        ]
        return f"{kind} [\n" + ",\n".join(rows) + "\n]\n"

    signature = model.signature
    text = f'backend: "python"\nmax_batch_size: {model.max_batch_size}\n'
    text += tensors("input", signature.inputs) + tensors("output", signature.outputs)
    text += f"instance_group [ {{ count: {model.instances} kind: KIND_CPU }} ]\n"
    if model.max_batch_size:
        text += f"dynamic_batching {{ max_queue_delay_microseconds: {model.max_queue_delay_microseconds} }}\n"
    if signature.asynchronous and not signature.decoupled:
        text += f'parameters {{ key: "ASYNC_EXECUTE_OVERLAP" value: {{ string_value: "{OVERLAP}" }} }}\n'
    if signature.decoupled:
        text += "model_transaction_policy { decoupled: true }\n"
    if model.description:
        text += f'parameters {{ key: "description" value: {{ string_value: {_quoted(model.description)} }} }}\n'
    return text


def _local(file: Path) -> Dict[str, Path]:
    """Return the modules in the folder of the file, by their paths in it: the file and its imports."""
    folder, found = file.parent, {file.name: file}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        real = Path(os.path.realpath(path))
        try:
            inside = real.relative_to(folder)
        except ValueError:
            continue
        # The folder may contain an environment.
        installed = {"site-packages", "dist-packages"} & set(inside.parts) or str(real).startswith(f"{sys.prefix}/lib")
        if not installed:
            found[str(inside)] = real
    # Functions may import more later.
    todo = list(found.values())
    while todo:
        for path in _imports(todo.pop(), folder):
            inside = path.relative_to(folder)
            if str(inside) not in found:
                found[str(inside)] = path
                todo.append(path)
    return found


def _imports(file: Path, folder: Path) -> Iterator[Path]:
    """Yield the modules below the folder that a file imports anywhere in its code."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # in code that nothing has imported yet
        return
    for node in ast.walk(tree):
        names: List[Tuple[str, ...]] = []
        base = folder
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = file.parents[node.level - 1]
            parts = tuple(node.module.split(".")) if node.module else ()
            names = [parts, *((*parts, alias.name) for alias in node.names)]
        for name in names:
            for end in range(1, len(name) + 1):
                for path in (base.joinpath(*name[:end], "__init__.py"), base.joinpath(*name[:end]).with_suffix(".py")):
                    if path.is_file() and folder in path.parents:
                        yield path


def _write(path: Path, content: bytes) -> None:
    """Write a file, unless it has that content: servers reload what changes."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write(file: Path, output: Path, copy: bool, others: Dict[str, str]) -> Dict[str, Any]:
    """Import a file and write the repository. Returns the output of the program.

    others has the files of models that are served beside it.
    """
    from .functions import models

    file = Path(os.path.realpath(file))
    if not file.stem.isidentifier():
        raise SystemExit(f"{file.name}: Python cannot import a file with this name: use letters, digits and _")
    known = importlib.util.find_spec(file.stem)
    if known is not None and os.path.realpath(known.origin or "") != str(file):
        raise SystemExit(f"{file}: its name hides the module {file.stem}: rename the file")
    sys.path.insert(0, str(file.parent))
    sys.dont_write_bytecode = True
    importlib.import_module(file.stem)
    local = _local(file)
    if not models:
        raise SystemExit(f"{file}: it has no model: write @nereid.model above a function")
    for name in models:
        if name in others:
            raise SystemExit(f"{file}: {others[name]} also has a model {name}: choose another name with name=")
    own = Path(__file__).parent
    for name, model in models.items():
        version = output / name / "1"
        files: Dict[Path, bytes] = {}
        directory = repr(str(file.parent))
        if copy:
            directory = "os.path.dirname(os.path.abspath(__file__))"
            files.update({version / path: real.read_bytes() for path, real in local.items()})
            files.update({version / "nereid" / source.name: source.read_bytes() for source in own.glob("*.py")})
            if version.is_dir():
                for stale in version.rglob("*"):
                    if stale.suffix == ".py" and stale not in files and stale != version / "model.py":
                        stale.unlink()
        text = MODEL.format(name=name, file=file.name, directory=directory, module=file.stem)
        files[version / "model.py"] = text.encode()
        files[output / name / "config.pbtxt"] = config_of(model).encode()
        for path, content in files.items():
            _write(path, content)
    if not copy and output.is_dir():
        for old in output.iterdir():
            if old.name not in models:
                shutil.rmtree(old)
    return {"models": list(models), "files": sorted(str(path) for path in local.values()), "warnings": _warnings()}


def _warnings() -> List[str]:
    try:
        from importlib import metadata

        version = metadata.version("nereid")
    except Exception:  # it is not installed
        return []
    text = f"the package nereid {version} has nothing to do with this server, and its module nereid is hidden"
    return [f"{text}: remove it with pip uninstall nereid; this server's package is nereid-serving"]


def _explain(file: Path, error: BaseException) -> str:
    """Return a traceback from the first line of the user's own files on."""
    frames = traceback.extract_tb(error.__traceback__)
    real = os.path.realpath(file)
    first = next((i for i, frame in enumerate(frames) if os.path.realpath(frame.filename) == real), len(frames))
    lines = traceback.format_list(frames[first:]) + traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip()


def main(file: str, output: str, mode: str, others: str = "{}") -> int:
    """Run the program; returns its exit code."""
    try:
        import numpy as _  # noqa: F401
    except ImportError:
        return 3
    from .functions import Mistake

    out = sys.stdout
    sys.stdout = sys.stderr  # for prints of the file
    try:
        made = write(Path(file), Path(output), mode == "copy", json.loads(others))
    except Mistake as error:
        print(error, file=sys.stderr)
        return 1
    except SystemExit as error:
        text = error.code if isinstance(error.code, str) else f"{file} ended Python with status {error.code}"
        print(text, file=sys.stderr)
        return 1
    except BaseException as error:
        print(_explain(Path(file), error), file=sys.stderr)
        return 1
    print(json.dumps(made), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
