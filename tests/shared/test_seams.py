import sys

import pytest

from shared.seams import plugged


@pytest.fixture
def rings(tmp_path, monkeypatch):
    """Three packages, of which two have a module of that name."""
    for name in ("first_ring", "second_ring", "third_ring"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for name in ("third_ring", "first_ring"):
        (tmp_path / name / "side.py").write_text(f"NAME = {name!r}")
    monkeypatch.syspath_prepend(tmp_path)
    yield ("first_ring", "second_ring", "third_ring")
    for name in [each for each in sys.modules if "_ring" in each and sys.modules[each].__file__]:
        if str(tmp_path) in sys.modules[name].__file__:
            del sys.modules[name]


def test_the_modules_at_a_seam_come_in_the_order_of_the_list(rings):
    assert [module.NAME for module in plugged(rings, "side")] == ["first_ring", "third_ring"]


def test_a_ring_without_one_has_nothing_to_plug_in(rings):
    assert list(plugged(rings, "other_side")) == []


def test_a_ring_is_imported_only_when_it_is_reached(rings):
    next(plugged(rings, "side"))
    assert "first_ring.side" in sys.modules
    assert "third_ring.side" not in sys.modules


def test_a_fault_inside_a_ring_is_not_mistaken_for_a_ring_that_is_not_there(rings, tmp_path):
    (tmp_path / "second_ring" / "side.py").write_text("import a_module_that_is_not_there")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        list(plugged(rings, "side"))
