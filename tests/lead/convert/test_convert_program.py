"""`lead convert` writes a GGUF file, or explains why it cannot."""

import pytest
from gguf import GGUFReader

from lead.cli import main
from tests.shared.convert.conftest import (  # noqa: F401 - fixtures
    checkpoint,
    conversion_cache,
    gpt2_folder,
    tokenizer,
)


@pytest.fixture
def run(monkeypatch):
    """Runs `lead convert` with arguments."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lead", "convert", *map(str, arguments)])
        main()

    return run


def file_type(path):
    return GGUFReader(path).fields["general.file_type"].contents()


def test_a_checkpoint_is_written_in_the_wanted_type(run, checkpoint, tmp_path):  # noqa: F811
    for kind, number in (("f32", 0), ("f16", 1), ("q8_0", 7)):
        run(checkpoint, tmp_path / f"{kind}.gguf", "--type", kind)
        assert file_type(tmp_path / f"{kind}.gguf") == number


def test_a_folder_is_written(run, gpt2_folder, tmp_path):  # noqa: F811
    run(gpt2_folder, tmp_path / "out.gguf")
    assert GGUFReader(tmp_path / "out.gguf").fields["general.name"].contents() == "gpt2"


def test_the_tokenizer_can_be_named(run, checkpoint, tokenizer, tmp_path):  # noqa: F811
    elsewhere = tokenizer.rename(tmp_path / "other.bin")
    run(checkpoint, tmp_path / "out.gguf", "--tokenizer", elsewhere)
    assert (tmp_path / "out.gguf").is_file()


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("missing.bin", "out.gguf", "missing.bin does not exist"),
        ("model.gguf", "out.gguf", "is not a llama2.c checkpoint or a folder with GPT-2"),
        ("stories.bin", "stories.bin", "cannot be written. Choose another GGUF file"),
        ("stories.bin", ".", "cannot be written. Choose another GGUF file"),
        ("stories.bin", "missing/out.gguf", "cannot write"),
        (".", "out.gguf", "is a folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(  # noqa: PLR0917 - fixtures
    run,
    checkpoint,  # noqa: F811
    tmp_path,
    source,
    destination,
    message,
):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(SystemExit, match=f"lead convert: .*{message}"):
        run(tmp_path / source, tmp_path / destination)
    assert checkpoint.is_file()
    assert not (tmp_path / "out.gguf").exists()
