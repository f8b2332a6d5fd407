import pytest

from shared import cpus


@pytest.fixture
def _one_thread(monkeypatch):
    """A bench run within the test: it computes with one thread, and pins nothing.

    Several would spin at barriers while other tests have their cores.
    """
    monkeypatch.setattr(cpus, "usable", lambda: frozenset({0}))
    monkeypatch.setattr(cpus, "pin", lambda _cpus: None)
