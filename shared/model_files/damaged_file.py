"""Says why a file is not a whole GGUF file, and what to do about it.

llama.cpp's message is the same for all such files, or names a tensor.
"""

import mmap
from pathlib import Path

from shared.model_files.gguf_header import (
    GGUF_MAGIC,
    BadHeaderError,
    EndsInHeaderError,
    declared_size,
    read_version,
)
from shared.terminal import size_text

N_READ = 512
"""The number of bytes read to recognize other files."""
_MAX_HEADER = 1 << 26
"""The maximum number of bytes of a header; a vocabulary of 256,000 tokens takes 16 MB."""
_AGAIN = "download it again"
_GGUF = "download the model as a GGUF file (lead models pull USER/REPO)"
_OLD = f"a model of llama.cpp's older format, GGML, which it no longer reads: {_GGUF}"
_SAFETENSORS = f"a safetensors file: {_GGUF}; for GPT-2, set --model to the folder with config.json"
_WEB_PAGE = f"a web page, such as an error or a log-in page of the site, not the file itself: {_AGAIN}"
_POINTER = "a pointer of Git LFS, not the file itself: run `git lfs pull` in its folder"
_BEGINNINGS = {
    b"PK\x03\x04": f"a ZIP archive or a PyTorch file: unpack an archive; otherwise {_GGUF}",
    b"\x80\x02": f"a PyTorch file: {_GGUF}",
    **dict.fromkeys((b"lmgg", b"fmgg", b"tjgg", b"algg"), _OLD),
    b"version https://git-lfs": _POINTER,
    b"\x1f\x8b": "a gzip archive: unpack it (gunzip, tar -xzf)",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive: unpack it (zstd -d)",
    b"\xfd7zXZ": "an xz archive: unpack it (unxz, tar -xJf)",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive: unpack it",
    b"%PDF": f"a PDF document: {_GGUF}",
    b"\x7fELF": f"a program: {_GGUF}",
    b"\x89HDF": f"an HDF5 file: {_GGUF}",
}
"""The first bytes of other files, and the end of a sentence about each kind."""
_UNKNOWN = f"not a GGUF file: {_GGUF}"
_HTML = (b"<!doctype", b"<html", b"<?xml")
_VERSIONS = (2, 3)
"""The versions of GGUF that llama.cpp reads."""
_MAX_VERSION = 100
"""A larger number is not a version."""


def why_unusable(path: Path) -> str | None:
    """Return what is wrong with a file, and the remedy, as the end of a sentence; None: it seems to be whole.

    Reads the header of a GGUF file, which takes up to half a second. Raises nothing.
    """
    try:
        with path.open("rb") as file:
            if not (beginning := file.read(N_READ)):
                return f"it is empty: {_AGAIN}"
            if not beginning.startswith(GGUF_MAGIC):
                return f"it is {what_else(beginning) or _UNKNOWN}"
            n_bytes = path.stat().st_size
            with mmap.mmap(file.fileno(), min(n_bytes, _MAX_HEADER), access=mmap.ACCESS_READ) as data:
                return _why_not_whole(data, n_bytes)
    except OSError as error:
        return why_unreadable(error)


def why_unreadable(error: OSError) -> str:
    """Return the same as `why_unusable`, for a file that cannot be opened or read."""
    return f"it cannot be read ({error.strerror}): check its owner and permissions, and the disk"


def what_else(beginning: bytes) -> str | None:
    """Return the kind of a file with this beginning, and the remedy; None: unknown."""
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    by_look = {
        f"nothing but zeros where a GGUF file begins: {_AGAIN}": not beginning.strip(b"\0"),
        _WEB_PAGE: text.startswith(_HTML),
        _SAFETENSORS: beginning[8:10] == b'{"',
        f"JSON, such as an error of the site, not the file itself: {_AGAIN}": text.startswith(b"{"),
        "a tar archive: unpack it (tar -xf)": beginning[257:262] == b"ustar",
    }
    by_magic = (what for magic, what in _BEGINNINGS.items() if beginning.startswith(magic))
    return next(by_magic, None) or next((what for what, it_is in by_look.items() if it_is), None)


def _why_not_whole(data: mmap.mmap, n_bytes: int) -> str | None:
    try:
        version = read_version(data)
        if version not in _VERSIONS:
            return _of_version(version)
        n_declared = declared_size(data)
    except EndsInHeaderError:
        return f"it is incomplete, and ends within its header: {_AGAIN}"
    except BadHeaderError as error:
        return f"its header is damaged ({error}): {_AGAIN}"
    if n_bytes < n_declared:
        return f"it is incomplete, with {size_text(n_bytes)} of {size_text(n_declared)}: {_AGAIN}"
    return None


def _of_version(version: int) -> str:
    if version == 1:
        return "it is GGUF version 1, which llama.cpp no longer reads: download a newer file of the model"
    if version and version % (1 << 16) == 0:  # its bytes are in the other order
        return "it was written for a big-endian machine: download a little-endian file of the model"
    if max(_VERSIONS) < version < _MAX_VERSION:
        return f"it is GGUF version {version}, which a newer llama-duo may read"
    return f"its header is damaged (version {version}): {_AGAIN}"
