import errno
import io
import json
import logging
import os
import re
import struct
import tarfile
import zipfile
from pathlib import Path

import gguf
import pytest
from gguf.scripts.gguf_new_metadata import copy_with_new_metadata

from back.check import check as check_back
from back.settings import BackSettings
from lead.diagnostics.check import check as check_lead
from lead.router.memory_need import memory_need
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft
from shared.model_files.damaged_file import why_unusable

WHOLE = builtin_draft().read_bytes()
N_TENSORS_AT, N_VALUES_AT = 8, 16
INCOMPLETE, IN_HEADER = (
    r"is incomplete, with [\d.]+ MB of [\d.]+ MB: download it again",
    "ends within its header",
)
OLDER = "older format, GGML, which it no longer reads: download the model as a GGUF file"
WEB_PAGE = "a web page, .* not the file itself: download it again"


def packed(archive):
    data = io.BytesIO()
    if archive == "zip":
        with zipfile.ZipFile(data, "w") as file:
            file.writestr("model.gguf", WHOLE[:1000])
    else:
        with tarfile.open(fileobj=data, mode=archive) as file:
            file.addfile(tarfile.TarInfo("model.gguf"))
    return data.getvalue()


def changed(at, form, value):
    return WHOLE[:at] + struct.pack(form, value) + WHOLE[at + struct.calcsize(form) :]


def with_architecture(name):
    return WHOLE.replace(b"llama", name.encode(), 1)


SAFETENSORS = json.dumps({"weight": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}).encode()
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4096\n"
BROKEN = {
    "empty": (b"", "is empty: download it again"),
    "magic alone": (b"GGUF", IN_HEADER),
    "cut in the first numbers": (WHOLE[:20], IN_HEADER),
    "cut in the metadata": (WHOLE[:300], IN_HEADER),
    "cut in the vocabulary": (WHOLE[:20_000], IN_HEADER),
    "cut in the names of tensors": (WHOLE[: len(WHOLE) // 24], IN_HEADER),
    "cut in half": (WHOLE[: len(WHOLE) // 2], INCOMPLETE),
    "cut at the end": (WHOLE[:-4096], INCOMPLETE),
    "begins with zeros": (bytes(4096) + WHOLE[4096:], "nothing but zeros where a GGUF file begins"),
    "zeros": (bytes(100_000), "nothing but zeros where a GGUF file begins"),
    "version 1": (changed(4, "<I", 1), "GGUF version 1, which llama.cpp no longer reads"),
    "version 4": (changed(4, "<I", 4), "GGUF version 4, which a newer llama-duo may read"),
    "other byte order": (changed(4, ">I", 3), "for a big-endian machine: download a little-endian file"),
    "no version": (b"GGUF" + b"\x07" * 100, "its header is damaged"),
    "too many values": (changed(N_VALUES_AT, "<Q", 10**6), "header is damaged|ends within its header"),
    "too many tensors": (changed(N_TENSORS_AT, "<Q", 10**6), "header is damaged|ends within its header"),
    "a value of an unknown type": (changed(24 + 8 + 20, "<I", 99), "its header is damaged"),
    "an unknown architecture": (with_architecture("wombt"), "does not support the architecture wombt"),
    "a ZIP archive": (packed("zip"), "a ZIP archive or a PyTorch file: unpack an archive"),
    "a tar archive": (packed("w:"), r"a tar archive: unpack it \(tar -xf\)"),
    "a gzip archive": (packed("w:gz"), "a gzip archive: unpack it"),
    "a 7-Zip archive": (b"7z\xbc\xaf\x27\x1c" + bytes(100), "a 7-Zip archive: unpack it"),
    "a pickle": (b"\x80\x02}q\x00X", "a PyTorch file: download the model as a GGUF file"),
    "safetensors": (struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS, "a safetensors file"),
    "GGML": (b"lmgg" + bytes(100), OLDER),
    "GGJT": (b"tjgg\x03" + bytes(100), OLDER),
    "a web page": (b"\n<!DOCTYPE html><html>not found</html>", WEB_PAGE),
    "an error of a server": (b'<?xml version="1.0"?><Error/>', WEB_PAGE),
    "JSON": (b'{"error": "Repository not found"}', "JSON, such as an error of the site"),
    "a pointer of Git LFS": (POINTER, "a pointer of Git LFS, .*: run `git lfs pull` in its folder"),
    "text": (b"Once upon a time", "is not a GGUF file: download the model as a GGUF file"),
    "a program": (b"\x7fELF" + bytes(100), "a program"),
}


@pytest.fixture
def refusals(caplog):
    """The message of each program about a file. The log has no warnings besides."""

    def refusals(path: Path):
        lead = LeadSettings.from_command_line(["-m", str(path), "--port", "0", "-t", "1"])
        yield from check_lead(lead).problems
        yield from check_back(BackSettings.from_command_line(["-m", str(path), "-t", "1"])).problems
        for load in (lambda: Vocabulary.load(path), lambda: memory_need(lead, {})):
            with pytest.raises(ConfigError) as error:
                load()
            yield str(error.value)
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []

    return refusals


@pytest.mark.parametrize(("data", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_sentence_with_the_remedy(tmp_path, refusals, data, reason):
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    (said,) = set(refusals(path))
    assert said.startswith(f"{path} cannot be loaded: ")
    assert "\n" not in said
    assert re.search(reason, said), said


def test_a_part_that_is_cut_off_is_named(tmp_path, refusals):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=5)
    copy_with_new_metadata(gguf.GGUFReader(builtin_draft()), writer, {}, [])
    first, *_, last = sorted(tmp_path.iterdir())
    os.truncate(last, last.stat().st_size // 2)
    (said,) = set(refusals(first))
    assert said.startswith(f"{last} cannot be loaded: it is incomplete")


def test_a_part_that_is_missing_is_named(tmp_path, refusals):
    path = tmp_path / "model-00001-of-00002.gguf"
    path.write_bytes(WHOLE)
    (said,) = set(refusals(path))
    assert said.endswith("its folder lacks 1 of them: model-00002-of-00002.gguf")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.absolute, "does not exist. Check the path"),
        (Path.mkdir, "is a folder. Choose a GGUF file in it"),
        (lambda path: path.symlink_to("nowhere"), "does not exist. Check the path"),
        (os.mkfifo, "is not a file. Check the path"),
    ],
    ids=["nothing", "a folder", "a link to nothing", "a pipe"],
)
def test_what_is_no_file_is_one_sentence(tmp_path, refusals, make, said):
    path = tmp_path / "model.gguf"
    make(path)
    assert {said in each for each in refusals(path)} == {True}


def test_a_file_that_may_not_be_read_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(WHOLE)

    def refuse(*_, **_more):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read all there is
    assert why_unusable(path) == (
        "it cannot be read (Permission denied): check its owner and permissions, and the disk"
    )


def test_a_whole_file_is_not_refused():
    assert why_unusable(builtin_draft()) is None
