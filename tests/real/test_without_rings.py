"""Programs work without each removable ring: without its folders and its lines in the lists of rings."""

import itertools
import re
import shutil

import httpx
import pytest

from lab.parts.processes import start_lead
from tests.real.client import CHAT, ask, ask_until_accepted, chat
from tests.real.processes import LEAD, back_of
from tests.test_wall import RINGS, ROOT, WITHOUT

pytestmark = pytest.mark.real


TREES = 7
MISSING_IN = dict(zip(WITHOUT, itertools.combinations(range(TREES), 3), strict=False))
"""The trees without each ring. For any two rings a tree has the first and lacks the second."""


def take_out(rings, tree):
    """Copy the sources and their compiled files to `tree`, without these rings."""
    packages = [package for ring in rings for package in RINGS[ring]]
    for package in ("lead", "back", "shared"):
        shutil.copytree(ROOT / package, tree / package)
    for package in packages:
        shutil.rmtree(tree.joinpath(*package.split(".")), ignore_errors=True)
    for table in (tree / each for each in ("lead/rings/table.py", "back/rings.py", "shared/rings.py")):
        table.write_text(re.sub(rf'"({"|".join(map(re.escape, packages))})[\w.]*"', "*()", table.read_text()))


@pytest.mark.parametrize("number", range(TREES))
def test_without_any_ring_a_lead_starts_and_answers(number, tmp_path, monkeypatch, tiny_model):
    assert MISSING_IN.keys() == set(WITHOUT)
    missing = [ring for ring, numbers in MISSING_IN.items() if number in numbers]
    take_out(missing, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(tiny_model("llama")), *LEAD)
    with lead:
        assert ask(url, max_tokens=4).done, missing
        if "tools" in missing:
            reply = httpx.post(
                url + CHAT, json=chat(tools=[{"type": "function", "function": {"name": "add"}}])
            )
            expected = (400, "tools: this lead was installed without support for tool calls (lead.tools)")
            assert (reply.status_code, reply.json()["error"]["message"]) == expected


def test_without_translation_a_back_drafts_in_its_own_vocabulary(tmp_path, monkeypatch, target):
    take_out(["translation"], tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(target), *LEAD)
    with lead, back_of(lead, url, "alone"):
        assert ask_until_accepted(url).n_accepted > 0
