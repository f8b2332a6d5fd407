"""Exact mode if --n-gpu-layers auto finds no room on a GPU, and finds room at a later start."""

import contextlib

import pytest

from lead.engine.load import Load
from lead.engine.target_loading import load_target
from shared.errors import ModelLoadError
from shared.llama import devices, remembered
from shared.llama.placement import Device
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions

pytestmark = pytest.mark.gpu

REFUSED = "--exact is not possible here: .* layers on a GPU"


@pytest.fixture(autouse=True)
def _first_start(monkeypatch, tmp_path):
    monkeypatch.setattr(remembered, "user_cache_path", lambda _name: tmp_path)


@pytest.fixture
def no_room(monkeypatch):
    """While the context lasts, other programs occupy all memory of the devices."""

    def describe(found):
        return [Device(str(device), "", free=0, total=1 << 31) for device in found]

    @contextlib.contextmanager
    def taken():
        with monkeypatch.context() as patch:
            patch.setattr(devices, "describe", describe)
            yield

    return taken


def start(exact, exactness=None):
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, exact=exact, flash_attn="off")
    load = Load(model=builtin_target(), options=options, depth=0, exactness=exactness)
    model, exactness = load_target(load)
    is_offloaded = model.is_offloaded
    model.close()
    return is_offloaded, exactness


def test_it_is_promised_on_the_cpu_and_not_once_there_is_room(no_room):
    with no_room():
        is_offloaded, exactness = start("on")
    assert (is_offloaded, exactness.is_on) == (False, True)
    with pytest.raises(ModelLoadError, match=REFUSED):
        start("on")
    is_offloaded, exactness = start("auto")
    assert (is_offloaded, exactness.is_on) == (True, False)


def test_what_room_has_prevented_is_not_promised_later(no_room):
    with pytest.raises(ModelLoadError, match=REFUSED):
        start("on")
    with no_room():
        is_offloaded, exactness = start("on")
    assert (is_offloaded, exactness.is_on) == (False, True)


def test_a_lead_that_has_promised_it_keeps_its_next_engine_on_the_cpu(no_room):
    with no_room():
        _, promised = start("on")
    assert start("on", promised) == (False, promised)
