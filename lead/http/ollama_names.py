"""What leads and routers tell Ollama's clients alike."""

from typing import Final

VERSION: Final = "0.12.0"
"""Whose API this is: clients ask for at least some version."""
FOREVER: Final = "2318-01-01T00:00:00Z"
"""When a model leaves memory that stays: Ollama adds its longest duration, 292 years."""
LATEST: Final = ":latest"


def tagged(name: str) -> str:
    """Ollama's names have no spaces, and a tag."""
    name = "-".join(name.split())
    return name if ":" in name else name + LATEST
