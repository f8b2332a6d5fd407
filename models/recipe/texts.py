"""The generator's texts, which lie in TOML files next to the code. All of them were written for it."""

import tomllib
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, Any]:
    """The content of `name`.toml."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
