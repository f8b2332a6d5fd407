"""`lead cache`: lists and deletes what lead and back cache on this machine."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from platformdirs import user_cache_path, user_data_path, user_state_path
from pydantic import Field
from pydantic_settings import CliPositionalArg

from shared.cached_files import CacheFolder
from shared.errors import ConfigError
from shared.exits import exiting_in_words, print_text
from shared.settings.base import ProgramSettings
from shared.terminal import size_text

_CONTENTS: Final = {
    CacheFolder.CONVERTED: "GGUF files of llama2.c and GPT-2 models",
    CacheFolder.ATTENTION: "measurements of flash attention",
    CacheFolder.EXACTNESS: "batch sizes that give equal bits, measured for --exact",
    CacheFolder.MEMORY: "measured memory of models",
    CacheFolder.STEP_TIMES: "T(n), measured",
    CacheFolder.TRANSLATIONS: "translations between vocabularies",
    CacheFolder.VOCABULARIES: "vocabularies for backs that translate",
    CacheFolder.VOCABULARIES_OF_LEADS: "vocabularies of leads for the backs on this machine",
}
_OTHERS: Final = "models made for demonstrations and measurements"


class CacheSettings(ProgramSettings):
    """List or delete the files of lead and back in the cache folder. They are made again when needed.

        lead cache                list files and sizes
        lead cache clear

    For a systemd service, run this command as root with XDG_CACHE_HOME=/var/cache/llama-duo-lead.
    """

    program = "lead cache"
    prefix = "LEAD_CACHE_"

    action: CliPositionalArg[Literal["list", "clear"]] = Field("list", description="action: list or clear")


def main(arguments: Sequence[str]) -> None:
    """Run `lead cache`. Exits with status 1 and a message if something cannot be deleted."""
    settings = CacheSettings.from_command_line(arguments)
    folder = user_cache_path("llama-duo")
    with exiting_in_words(settings.program):
        print_text(_report(folder) if settings.action == "list" else _clear(folder))


def _report(folder: Path) -> str:
    sizes: dict[str, int] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        name = path.name if path.is_dir() else ""
        sizes[name] = sizes.get(name, 0) + _size(path)
    lines = [
        f"  {name or '*.gguf':<22} {_CONTENTS.get(name, _OTHERS):<52} {size_text(sizes[name]):>11}"  # type: ignore[call-overload]
        for name in sorted(sizes)
    ]
    others = [
        ("the input history of chat", user_state_path("llama-duo")),
        ("saved data, such as conversations", user_data_path("llama-duo")),
    ]
    kept = [f"  {path}: {what}" for what, path in others if path.exists()]
    return "\n".join(
        [
            f"{folder}: {size_text(sum(sizes.values()))}",
            *lines,
            "Not deleted by `lead cache clear`:",
            *kept,
            "  downloaded Hugging Face models: `hf cache ls` lists them, `hf cache rm` deletes them",
        ]
    )


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files if each.is_file())


def _clear(folder: Path) -> str:
    """Delete the folder; return the sentence to print. Raises ConfigError."""
    n_bytes = _size(folder)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return f"{folder} does not exist"
    except OSError as error:
        raise ConfigError(f"cannot delete {error.filename}: {error.strerror}") from error
    return f"{folder} is deleted, {size_text(n_bytes)}"
