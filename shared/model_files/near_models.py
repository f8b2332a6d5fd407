"""Finds models with names similar to a missing file: in its folder, in the hub's cache, on the hub."""

import difflib
import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from shared.errors import ConfigError
from shared.model_files.file_kind import is_model
from shared.model_files.hub import Hub, HubModel

_HUB_SECONDS: Final = 3.0
"""The time limit for a search on the hub, which may be out of reach."""
_N_SHOWN: Final = 3
_SIMILAR: Final = 0.5
_NO_WORD: Final = re.compile(r"[^a-z0-9.]+")


def no_such_model(path: Path, hub: Hub) -> str:
    """Return a sentence that says that `path` does not exist, and how to get models with similar names."""
    name = path.name.removesuffix(".gguf")
    near = [
        _offer("in its folder", (str(each) for each in _alike(name, _in_folder(path.parent)))),
        _offer("in the hub's cache", (f"-hf {each}" for each in _alike(name, _in_cache(hub)))),
        _offer("on the hub", (f"-hf {each}" for each in _meant_on_hub(path, name, hub))),
    ]
    found = "; ".join(filter(None, near)) or "-hf USER/REPO:QUANT downloads a model from Hugging Face"
    return f"{path} does not exist. Check the path; {found}"


def _offer(place: str, names: Iterable[str]) -> str:
    shown = ", ".join(names)
    return f"{place}: {shown}" if shown else ""


def _alike(name: str, models: Iterable[str]) -> Sequence[str]:
    """Return the names that contain the words of `name`, or are spelled like it."""
    names = {each: Path(each).name.removesuffix(".gguf") for each in models}
    words = _words(name)
    same = [each for each, own in names.items() if all(word in own.casefold() for word in words)]
    similar = difflib.get_close_matches(name, names.values(), _N_SHOWN, _SIMILAR)
    return (same or [each for each, own in names.items() if own in similar])[:_N_SHOWN]


def _words(name: str) -> list[str]:
    return list(filter(None, _NO_WORD.split(name.casefold())))


def _in_folder(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(str(each) for each in folder.iterdir() if is_model(each.name))
    return []


def _in_cache(hub: Hub) -> list[str]:
    with suppress(ConfigError, OSError):
        return list(dict.fromkeys(name for name, _, files in hub.revisions() if any(map(is_model, files))))
    return []


def _meant_on_hub(path: Path, name: str, hub: Hub) -> list[str]:
    """Return the models on the hub that `path` may mean; a path with folders may mean only a repository."""
    if len(path.parts) == 1:
        return on_hub(name, hub)
    with suppress(ValueError):
        HubModel.parse(str(path))
        return [] if path.suffix in {".gguf", ".bin"} else [str(path)]
    return []


def on_hub(name: str, hub: Hub) -> list[str]:
    """Return repositories with GGUF files, the most used first; none if the hub does not answer soon."""
    found: list[str] = []

    def search() -> None:
        with suppress(ConfigError):
            found.extend(hub.search(" ".join(_words(name)), _N_SHOWN, _HUB_SECONDS))

    # A name server that does not answer has time limits of its own.
    searching = threading.Thread(target=search, daemon=True)
    searching.start()
    searching.join(_HUB_SECONDS)
    return list(found)
