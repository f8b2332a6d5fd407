"""Copies of GGUF files that differ from them in one thing."""

from collections.abc import Callable
from pathlib import Path

from gguf import GGUFReader, GGUFWriter


def with_tensor(source: Path, destination: Path, name: str, original: str) -> None:
    """A copy with one more tensor, which repeats another."""
    _copy(source, destination, lambda tensor: [tensor, name] if tensor == original else [tensor])


def without_vocabulary(source: Path, destination: Path) -> None:
    """A copy of which nothing can be asked; its thousands of strings are most of what there is to read."""
    _copy(source, destination, lambda tensor: [tensor], leave_out="tokenizer.")


def without_tensors(source: Path, destination: Path, is_dropped: Callable[[str], bool]) -> Path:
    """A copy without the tensors of certain names."""
    _copy(source, destination, lambda tensor: [] if is_dropped(tensor) else [tensor])
    return destination


def write_header_only(writer: GGUFWriter) -> None:
    """Write what has been added; without tensors that is the header alone."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy(
    source: Path, destination: Path, names_of: Callable[[str], list[str]], leave_out: str = "\0"
) -> None:
    reader = GGUFReader(source)
    writer = GGUFWriter(destination, reader.fields["general.architecture"].contents())
    for key, field in list(reader.fields.items())[4:]:  # after the reader's own three and the architecture
        if not key.startswith(leave_out):
            kind, *sub_types = field.types
            writer.add_key_value(key, field.contents(), kind, sub_types[-1] if sub_types else None)
    for tensor in reader.tensors:
        for name in names_of(tensor.name):
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    write_header_only(writer)
