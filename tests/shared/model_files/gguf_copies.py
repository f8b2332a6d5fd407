"""Copies of GGUF files with one difference."""

from collections.abc import Callable
from pathlib import Path

from gguf import GGUFReader, GGUFWriter

from tests.tiny_models import WRITTEN, copy_fields, write_and_close


def with_tensor(source: Path, destination: Path, name: str, original: str) -> None:
    """Write a copy with one more tensor, which repeats `original`."""
    _copy(source, destination, lambda tensor: [tensor, name] if tensor == original else [tensor])


def without_vocabulary(source: Path, destination: Path) -> None:
    """Write a copy without the vocabulary, whose thousands of strings take most of the time to read."""
    _copy(source, destination, lambda tensor: [tensor], leave_out="tokenizer.")


def without_tensors(source: Path, destination: Path, is_dropped: Callable[[str], bool]) -> Path:
    """Write a copy without the tensors of certain names."""
    _copy(source, destination, lambda tensor: [] if is_dropped(tensor) else [tensor])
    return destination


def _copy(
    source: Path, destination: Path, names_of: Callable[[str], list[str]], leave_out: str = "\0"
) -> None:
    reader = GGUFReader(source)
    writer = GGUFWriter(destination, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer, lambda key: not key.startswith((*WRITTEN, leave_out)))
    for tensor in reader.tensors:
        for name in names_of(tensor.name):
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    write_and_close(writer)
