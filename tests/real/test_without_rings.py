"""Each ring that can be taken out is: its folder is deleted, and its line in the list of rings."""

import shutil

import pytest

from bench.processes import start_lead
from lead.rings.table import RINGS as LEADS_RINGS
from tests.real.client import ask
from tests.real.processes import LEAD
from tests.test_wall import RINGS, ROOT, WITHOUT, modules, ring_of

pytestmark = pytest.mark.real


def take_out(ring, tree):
    """Copy the sources to `tree`, with what they have been compiled to, but for a ring's."""
    for package in ("lead", "shared"):
        shutil.copytree(ROOT / package, tree / package)
    rings = tree / "lead" / "rings" / "table.py"
    lines = rings.read_text().splitlines()
    for package in RINGS[ring]:
        folder = tree.joinpath(*package.split("."))
        shutil.rmtree(folder, ignore_errors=True)
        lines = [line for line in lines if not line.strip().startswith(f'"{package}')]
    rings.write_text("\n".join(lines))


@pytest.mark.parametrize("ring", WITHOUT)
def test_without_a_ring_a_lead_starts_and_answers(ring, tmp_path, monkeypatch, tiny_model):
    take_out(ring, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(tiny_model("llama")), *LEAD)
    with lead:
        assert ask(url, max_tokens=4).done


def test_the_list_has_all_rings_that_are_plugged_in():
    seams = ("before_load", "companions", "in_engine", "kind", "model_routes", "opened", "routes")
    found = {module.rpartition(".")[0] for module in modules() if module.split(".")[-1] in seams}
    assert {package for package in found if ring_of(package)} == set(LEADS_RINGS)
