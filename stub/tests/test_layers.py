"""The modules of the stub and of the API form layers: imports have no cycles."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest

TREE = Path(__file__).parents[2]
PACKAGES = [
    "stub/pb_stub",
    "stub/nereid_devices",
    "pyutils/c_python_backend_utils",
    "pyutils/nereid_testing",
]


def imported(tree: ast.AST, package: str, modules: set[str]) -> Iterator[str]:
    """Return the modules that a file imports, even inside functions or for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level == 1 or (node.module or "").split(".")[0] == package):
            path = (node.module or "").split(".")
            module = path[0] if node.level == 1 else ".".join(path[1:2])
            for name in [module] if module else [alias.name for alias in node.names]:
                yield name if name in modules else "__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top, _, rest = alias.name.partition(".")
                if top == package:
                    yield rest.split(".")[0] or "__init__"


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import cycle in order, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for other in sorted(graph[module]):
                if found := visit(other, [*path, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_imports(package: str) -> None:
    files = {file.stem: file for file in (TREE / package).glob("*.py")}
    name = package.rsplit("/", 1)[1]
    graph = {module: set(imported(ast.parse(file.read_text()), name, set(files))) for module, file in files.items()}
    assert cycle(graph) == []


def test_a_circle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
