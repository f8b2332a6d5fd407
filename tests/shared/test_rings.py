"""A part that is not installed is refused when it is used."""

import pytest

from shared import rings
from shared.errors import ModelLoadError
from shared.lora import adapters


def test_adapters_are_applied_by_a_ring():
    assert rings.adapters() is adapters


def test_without_it_they_are_refused(monkeypatch):
    monkeypatch.setattr(rings, "RINGS", ())
    with pytest.raises(ModelLoadError, match="--lora: "):
        rings.adapters()
