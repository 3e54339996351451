"""JavaScript modules as one script, so that a page works from disk, where browsers load no modules."""

from __future__ import annotations

import re
from pathlib import Path

IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}|\*\s+as\s+(\w+))\s+from\s+"(\.{1,2}/[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?(?:function\*?|class|const)\s+(\w+))", re.MULTILINE)
LEFT = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)  # in a form that is not understood here


def bundle(*entries: Path) -> str:
    """Modules and all that they import as one script: the exports of folder/name.js are the constant $folder_name."""
    order: dict[Path, str] = {}
    for entry in entries:
        _add(entry.resolve(), order, ())
    return '"use strict";\n' + "\n".join(order.values())


def _add(path: Path, order: dict[Path, str], trail: tuple[Path, ...]) -> None:
    """Append a module after those that it imports."""
    if path in trail:
        raise ValueError(f"modules import each other: {' -> '.join(one.name for one in (*trail, path))}")
    if path in order:
        return
    text = path.read_text(encoding="utf-8")
    for found in IMPORT.finditer(text):
        _add((path.parent / found[3]).resolve(), order, (*trail, path))
    body = IMPORT.sub(lambda found: _binding(found, _variable((path.parent / found[3]).resolve())), text)
    body = EXPORT.sub("", body)
    if left := LEFT.search(body):
        raise ValueError(f"{path.name}: cannot bundle {left[0]!r}")
    exported = EXPORT.findall(text)
    returned = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    order[path] = f"const {_variable(path)} = (() => {{\n{body}{returned}}})();"


def _variable(path: Path) -> str:
    return f"${path.parent.name}_{path.stem}"


def _binding(found: re.Match[str], module: str) -> str:
    """An import as a declaration of constants."""
    if found[2]:
        return f"const {found[2]} = {module};\n"
    names = ", ".join(re.sub(r"\s+as\s+", ": ", name.strip()) for name in found[1].split(",") if name.strip())
    return f"const {{ {names} }} = {module};\n"
