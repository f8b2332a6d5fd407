import pytest

from shared.convert.converted_file import read_conversion
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from tests.shared.convert import gpt2_reference, llama2c_reference
from tests.shared.convert.conftest import PIECES, SCORES, small_gpt2, small_llama


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory):
    """By name: two byte-level BPEs, and SentencePiece, where several tokens have the same bytes."""
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "tokenizer.bin").write_bytes(llama2c_reference.tokenizer_bin(PIECES, SCORES))
    (folder / "llama.bin").write_bytes(llama2c_reference.version_1(small_llama()))
    gpt2_reference.write_folder(folder / "gpt2", *small_gpt2())
    found = {"shipped": Vocabulary.load(builtin_target())}
    for name, source in (("gpt2", folder / "gpt2"), ("llama2c", folder / "llama.bin")):
        read_conversion(source, None).file().write_outline(folder / f"{name}.gguf")
        found[name] = Vocabulary.load(folder / f"{name}.gguf")
    return found
