import pytest

from bench import models
from bench.models import DraftModel, draft_shape, n_draft_parameters
from shared.errors import ConfigError
from shared.models.grow import Shape


@pytest.mark.parametrize("name", ["0.4G", "0.4G:q9", "7G:f16", ""])
def test_a_target_is_named_by_size_and_type(name):
    with pytest.raises(ConfigError, match="write size:type"):
        models.target(name)


@pytest.mark.parametrize("n_parameters", [1e6, 5e6, 40e6, 120e6])
def test_a_draft_shape_is_the_smallest_that_is_large_enough(n_parameters):
    shape = draft_shape(n_parameters)
    smaller = Shape(shape.width - 64, shape.n_layers, (shape.width - 64) // 32, 4 * (shape.width - 64))
    assert n_draft_parameters(shape) >= n_parameters
    assert shape.width == 128 or n_draft_parameters(smaller) < n_parameters


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Growing makes empty files; a step costs the square of the width."""
    grown = []

    def grow(_source, shape, _quantization):
        path = tmp_path / f"{shape.width}.gguf"
        path.touch()
        grown.append(shape)
        return path

    monkeypatch.setattr(models, "_cache", lambda: tmp_path)
    monkeypatch.setattr(models, "_grown", grow)
    monkeypatch.setattr(models, "_ratio", lambda path, _cpus, _first: int(path.stem) ** 2 * 1.3e-7)
    return tmp_path, grown


class Target:
    """A path of a target of 0.8 GB."""

    name = "target.gguf"

    class _Stat:
        st_size = 770_000_000

    def stat(self):
        return self._Stat


def test_a_draft_is_grown_until_its_cost_is_near(shop):
    _, grown = shop
    found = models._fit(0.1, Target(), "1", 1.0)
    assert found.ratio == pytest.approx(0.1, rel=0.15)
    assert len(grown) <= 4


def test_what_was_tried_and_not_taken_is_deleted(shop):
    folder, _ = shop
    found = models._fit(0.1, Target(), "1", 1.0)
    assert list(folder.glob("*.gguf")) == [found.path]


@pytest.mark.usefixtures("shop")
def test_what_was_found_is_kept(monkeypatch):
    monkeypatch.setattr(models, "_step_seconds", lambda *_: 1.0)
    first = models.draft("0.1", Target(), "0", "1")
    monkeypatch.setattr(models, "_step_seconds", None)
    assert models.draft("0.1", Target(), "0", "1") == first
    assert isinstance(first, DraftModel)
