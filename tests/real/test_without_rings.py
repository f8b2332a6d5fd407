"""Each ring that can be taken out is: its folders are deleted, and its lines in the lists of rings."""

import re
import shutil

import httpx
import pytest

from lab.parts.processes import start_lead
from tests.real.client import CHAT, ask, ask_until_accepted, chat
from tests.real.processes import LEAD, back_of
from tests.test_wall import RINGS, ROOT, WITHOUT

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


def test_without_tools_a_request_with_tools_is_refused_in_a_sentence(tmp_path, monkeypatch, tiny_model):
    take_out("tools", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(tiny_model("llama")), *LEAD)
    tool = {"type": "function", "function": {"name": "add"}}
    with lead:
        reply = httpx.post(url + CHAT, json=chat(tools=[tool]))
        expected = (400, "tools: this lead is without the part that calls them (lead.tools)")
        assert (reply.status_code, reply.json()["error"]["message"]) == expected


def test_without_translation_a_back_drafts_in_its_own_vocabulary(tmp_path, monkeypatch, target):
    take_out("translation", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lead, url = start_lead("--model", str(target), *LEAD)
    with lead, back_of(lead, url, "alone"):
        assert ask_until_accepted(url).n_accepted > 0
