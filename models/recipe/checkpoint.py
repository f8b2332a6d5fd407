"""A model on disk: its weights, its shape, and how far its training has come."""

from pathlib import Path
from typing import Any

import torch
from model import Config, Model


def load(path: Path) -> tuple[Model, dict[str, Any]]:
    """The model, and everything that was saved with it."""
    state = torch.load(path, weights_only=True)
    model = Model(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model, state


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace the file at once, so that a stopped run leaves the old one or the new one."""
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    temporary.replace(path)
