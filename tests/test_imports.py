"""The rules of the module graph: data flows one way, and each room imports only from those before or beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import susd

SRC = Path(susd.__file__).parent
CORE = {"errors", "paths", "callable", "types", "factors", "skills", "plugins"}
LEARNING = {"networks", "replay", "sac"}
# What each room or top-level module may import, in addition to itself and CORE.
ALLOWED: dict[str, set[str]] = {
    **{name: set() for name in CORE - {"plugins"}},
    "plugins": {"envs"},  # user code may import MuJoCo: how it renders is chosen before
    "networks": set(),
    "replay": set(),
    "sac": {"networks", "config"},
    "envs": set(),
    "methods": LEARNING | {"config"},  # cards are checked against the options that exist
    "config": {"methods", "envs"},
    "learner": LEARNING | {"methods", "config", "envs"},
    "collect": {"envs"},
    "tasks": {"envs", "collect"},
    "runs": {"config"},
    "viz": {"runs", "envs", "methods", "collect"},
}
ALLOWED["evaluation"] = {"collect", "config", "envs", "learner", "methods", "runs", "tasks", "training", "viz"} | LEARNING
# The ceiling of skills in a task, inside functions: what is loaded with an evaluation stays before downstream.
ALLOWED["evaluation"] |= {"downstream.interface", "downstream.returns", "downstream.vector"}
ALLOWED["training"] = {"collect", "config", "envs", "learner", "methods", "runs", "evaluation.online"} | LEARNING
ALLOWED["downstream"] = ALLOWED["evaluation"] | {"evaluation"}
ALLOWED["tools"] = ALLOWED["downstream"] | {"downstream"}
ALLOWED["experiments"] = ALLOWED["downstream"] | {"downstream"}
ALLOWED["report"] = ALLOWED["experiments"] | {"experiments"}
ALLOWED["share"] = ALLOWED["downstream"]
ALLOWED["explorer"] = ALLOWED["downstream"] | {"downstream"}
ALLOWED["cli"] = ALLOWED["report"] | {"report", "share", "explorer", "tools", "extend"}
PUBLIC = {"__init__", "extend"}  # they name what users import and may reach anywhere


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below susd."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def statements(body: list[ast.stmt], lazy: bool) -> Iterator[ast.stmt]:
    """The statements of a file, without those for type checkers, and without those inside functions unless `lazy`."""
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        if lazy or not isinstance(node, ast.FunctionDef):
            for name in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, name, []), lazy)
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body, lazy)


def imports(path: Path, known: dict[str, Path], lazy: bool = True) -> Iterator[str]:
    """The modules of the package that a file imports."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body, lazy):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] != "susd":
                continue
            below = name.removeprefix("susd").lstrip(".")
            while below and below not in known:
                below = below.rpartition(".")[0]
            if below:
                yield below


def test_rooms() -> None:
    known = modules()
    wrong = []
    for name, path in known.items():
        room = name.split(".")[0]
        if room in PUBLIC:
            continue
        for target in imports(path, known):
            other = target.split(".")[0]
            if other != room and other not in CORE | ALLOWED[room] and target not in ALLOWED[room]:
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_no_cycles_at_load_time() -> None:
    known = modules()
    graph = {name: set(imports(path, known, lazy=False)) - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a cycle: {' -> '.join((*trail[trail.index(name) :], name))}"
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_evaluations_load_without_downstream_tasks() -> None:
    known = modules()
    for name, path in known.items():
        if name.startswith("evaluation."):
            assert not [target for target in imports(path, known, lazy=False) if target.startswith("downstream")], name


def test_methods_know_no_environments() -> None:
    known = modules()
    for name, path in known.items():
        if name.startswith("methods."):
            assert not [target for target in imports(path, known) if target.startswith("envs")], name
