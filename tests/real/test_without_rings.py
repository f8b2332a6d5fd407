"""Each ring that can be taken out is: its folders are deleted, and its lines in the lists of rings."""

import re
import shutil

import pytest

from back.rings import RINGS as BACKS_RINGS
from bench.processes import start_lead
from lead.rings.table import RINGS as LEADS_RINGS
from shared.rings import RINGS as SHARED_RINGS
from tests.real.client import ask, ask_until_accepted
from tests.real.processes import LEAD, back_of
from tests.test_wall import RINGS, ROOT, WITHOUT, modules, ring_of

pytestmark = pytest.mark.real


def take_out(ring, tree):
    """Copy the sources to `tree`, with what they have been compiled to, but for a ring's."""
    for package in ("lead", "back", "shared"):
        shutil.copytree(ROOT / package, tree / package)
    for package in RINGS[ring]:
        shutil.rmtree(tree.joinpath(*package.split(".")), ignore_errors=True)
    for table in (tree / each for each in ("lead/rings/table.py", "back/rings.py", "shared/rings.py")):
        of_ring = "|".join(map(re.escape, RINGS[ring]))
        table.write_text(re.sub(rf'"({of_ring})[\w.]*"', "*()", table.read_text()))


@pytest.mark.parametrize("ring", WITHOUT)
def test_without_a_ring_a_lead_starts_and_answers(ring, tmp_path, monkeypatch, tiny_model):
    take_out(ring, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(tiny_model("llama")), *LEAD)
    with lead:
        assert ask(url, max_tokens=4).done


def test_without_translation_a_back_drafts_in_its_own_vocabulary(tmp_path, monkeypatch, target):
    take_out("translation", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(target), *LEAD)
    with lead, back_of(lead, url, "alone"):
        assert ask_until_accepted(url).n_accepted > 0


def packages_with(*seams):
    """Those of rings that have a module of one of these names."""
    found = {module.rpartition(".")[0] for module in modules() if module.split(".")[-1] in seams}
    return {package for package in found if ring_of(package)}


def test_the_lists_have_all_rings_that_are_plugged_in():
    in_both = ("other_vocabulary",)
    in_leads = (
        *("before_load", "companions", "in_engine", "inline_source", "kind", "model_routes", "opened"),
        *("routes", "target_loader"),
    )
    assert packages_with(*in_both, *in_leads) == set(LEADS_RINGS)
    assert packages_with(*in_both, "vocabulary_download") == set(BACKS_RINGS)
    assert packages_with("adapters", "place_layers") == set(SHARED_RINGS)
