"""What each file is for, as its own docstring says it."""

import ast
from pathlib import Path

from docs.generate.blocks import table

_PACKAGES = ("lead", "back", "chat", "fleet", "shared")


def module_index(root: Path) -> str:
    """A table for each folder below `root` that has modules, with a row for each of these."""
    folders = (folder for package in _PACKAGES for folder in _folders(root / package))
    sections = ((folder.relative_to(root).as_posix(), _rows(folder)) for folder in folders)
    return "\n\n".join(
        f"### {name}/\n\n{table(['file', 'what it is'], rows)}" for name, rows in sections if rows
    )


def _folders(package: Path) -> list[Path]:
    return sorted({path.parent for path in package.rglob("*.py")})


def _rows(folder: Path) -> list[list[str]]:
    modules = sorted(folder.glob("*.py"))
    return [[f"`{path.stem}`", _summary(path)] for path in modules if not path.stem.startswith("__")]


def _summary(module: Path) -> str:
    """The first paragraph of its docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())
