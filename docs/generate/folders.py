"""The folders of the lead, each with the first paragraph of its package's docstring."""

import ast
from pathlib import Path

from docs.generate.blocks import table

_LEAD = Path(__file__).parents[2] / "lead"


def lead_folders() -> str:
    """A table of the packages in lead/."""
    rows = [
        [f"`lead/{package.parent.name}/`", _purpose(package)]
        for package in sorted(_LEAD.glob("*/__init__.py"))
    ]
    return table(["folder", "purpose"], rows)


def _purpose(package: Path) -> str:
    """Raise ValueError if the package has no docstring."""
    text = ast.get_docstring(ast.parse(package.read_text("utf-8")))
    if not text:
        raise ValueError(f"{package} has no docstring")
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")
