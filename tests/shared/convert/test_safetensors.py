import json
import struct

import numpy as np
import pytest

from shared.convert.conversion import read_small
from shared.convert.safetensors import SafetensorsFile, SafetensorsFolder
from shared.errors import ModelLoadError
from tests.shared.convert.gpt2_reference import safetensors

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def with_header(header, data=bytes(24)):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def entry(**changes):
    return {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | changes}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_rows_are_read(path, kind):
    path.write_bytes(safetensors({"b": ARRAY + 1, "a": ARRAY}, kind))
    file = SafetensorsFile(path)
    assert np.array_equal(file.rows("a", 1, 2), ARRAY[1:2])
    assert np.array_equal(file.rows("a", 0, 3, transposed=True), ARRAY.T)
    assert file.rows("b", 0, 2).dtype == np.float32


def test_data_need_not_be_aligned(path):
    path.write_bytes(with_header(json.dumps(entry(data_offsets=[1, 25])).encode(), b"\0" + ARRAY.tobytes()))
    assert np.array_equal(SafetensorsFile(path).rows("a", 0, 2), ARRAY)


HEADERS = {
    "no JSON": b"{",
    "no object": [1],
    "nested deeply": b"[" * 100_000,
    "no type": {"a": {"shape": [6], "data_offsets": [0, 24]}},
    "beyond the end": entry(data_offsets=[0, 28], shape=[7]),
    "backwards": entry(data_offsets=[24, 0]),
    "negative": entry(data_offsets=[-24, 0]),
    "another shape": entry(shape=[2, 4]),
    "a huge shape": entry(shape=[2**62, 2**62]),
    "many dimensions": entry(shape=[1] * 1000),
    "a shape that is no number": entry(shape=[2.5, 3]),
    "a truth as number": entry(shape=[True, 6]),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies_is_refused(path, header):
    path.write_bytes(with_header(header))
    with pytest.raises(ModelLoadError, match="is not a complete safetensors file"):
        SafetensorsFile(path)


@pytest.mark.parametrize("data", [b"", b"\1", struct.pack("<Q", 2**63), struct.pack("<Q", 100) + b"{}"])
def test_a_file_that_is_cut_off_is_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(ModelLoadError):
        SafetensorsFile(path)


def index(tmp_path, names):
    text = json.dumps({"weight_map": {f"t{i}": name for i, name in enumerate(names)}})
    (tmp_path / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        *("../model.safetensors", "/etc/model.safetensors", "a/b.safetensors", ".."),
        *("", "a\\b.safetensors", "x.txt"),
    ],
)
def test_an_index_cannot_name_files_elsewhere(tmp_path, name):
    (tmp_path.parent / "model.safetensors").write_bytes(safetensors({"a": ARRAY}))
    index(tmp_path, [name])
    with pytest.raises(ModelLoadError, match="which is not a file in its folder"):
        SafetensorsFolder(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    index(tmp_path, ["model-00001-of-00001.safetensors"])
    with pytest.raises(ModelLoadError, match=r"lacks model-00001-of-00001\.safetensors"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelLoadError):
        SafetensorsFolder(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"has no model\.safetensors"):
        SafetensorsFolder(tmp_path)


def test_a_small_file_that_is_large_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(bytes(3 << 20))
    with pytest.raises(ModelLoadError, match="more than 2 MiB"):
        read_small(path, 2 << 20)
