from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.faults.site import Site
from shared.errors import ConfigError

READY = "03:00:00 lead INFO: ready: 4 slots"


class Lonely(Site):
    """Without processes: `engine` is what a test says."""

    engine = None


@pytest.fixture
def site():
    site = Lonely(Path("model.gguf"), 0, [])
    site.lead = SimpleNamespace(log="loading", process=SimpleNamespace(poll=lambda: None))
    return site


def test_an_engine_that_still_loads_is_not_taken(site):
    site.engine = "first"
    assert site.take_ready_engine() is None


def test_the_next_engine_is_not_taken_before_it_is_ready(site):
    site.engine, site.lead.log = "first", READY
    assert site.take_ready_engine() == "first"
    site.engine = "second"
    assert site.take_ready_engine() is None
    site.lead.log += f"\n{READY}"
    assert site.take_ready_engine() == "second"


def test_an_engine_that_survives_is_taken_again(site):
    site.engine, site.lead.log = "first", READY
    assert [site.take_ready_engine(), site.take_ready_engine()] == ["first", "first"]


def test_an_engine_that_is_gone_is_not_taken(site):
    site.lead.log = READY
    assert site.take_ready_engine() is None


def test_a_lead_that_has_ended_is_reported_with_the_end_of_its_log(site):
    site.require_lead()
    site.lead.process.poll = lambda: 70
    with pytest.raises(ConfigError, match="status 70:\nloading"):
        site.require_lead()
