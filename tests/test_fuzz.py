"""Short, seeded runs of `bench fuzz`: nobody raises, logs an error or changes a text."""

import itertools
import json
import logging
import random

import pytest

from bench import fuzz
from bench.fuzzing.file_side import FileFuzzer
from bench.fuzzing.mutations import Mutator
from bench.fuzzing.strange_files import TEMPLATES, StrangeFiles, read_header
from bench.fuzzing.tally import Tally, UnexpectedErrors
from lead.backs import draft_limits, join_limits
from lead.router.catalog import find_models
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_draft
from shared.models.hub import Hub
from tests.conftest import more

N = 1500


@pytest.fixture(autouse=True)
def pauses_as_before(monkeypatch):
    """The bench takes the lead's pauses away, for its whole process."""
    monkeypatch.setattr(draft_limits, "PAUSE_SECONDS", draft_limits.PAUSE_SECONDS)
    monkeypatch.setattr(join_limits, "REFUSAL_SECONDS", join_limits.REFUSAL_SECONDS)


@pytest.mark.parametrize("side", ["lead", "back", "real"])
@pytest.mark.parametrize("seed", [1, more(2)])
def test_no_message_crashes_a_peer_or_changes_a_text(capsys, side, seed):
    with pytest.raises(SystemExit) as ended:
        fuzz.main(["--messages", str(N), "--real", str(N), "--sides", side, "--seed", str(seed)])
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out.splitlines()[-1])["rows"]
    assert (row["crashes"], row["errors"], row["changed"]) == (0, 0, 0), shown.err
    assert ended.value.code == 0
    assert row["messages"] >= N
    assert row["connections"] > 2


def test_the_same_seed_breaks_messages_in_the_same_way():
    message = {"type": "draft", "tokens": [1, 2], "nested": {"a": 1}}
    first, again = (
        [mutator.broken(message) for _ in range(500)]
        for mutator in (Mutator(random.Random(1)), Mutator(random.Random(1)))
    )
    assert first == again
    assert len(set(first)) > 200
    assert message == {"type": "draft", "tokens": [1, 2], "nested": {"a": 1}}


def test_an_error_in_the_log_is_noticed():
    with UnexpectedErrors() as errors:
        logging.getLogger("lead").warning("a bug", exc_info=ValueError("x"))
        logging.getLogger("lead").warning("usual")
    assert list(errors.seen) == ["lead: a bug ValueError: x"]


@pytest.fixture(scope="module")
def strange():
    return StrangeFiles(random.Random(1), builtin_draft())


def test_a_template_is_changed_in_a_file_that_stays_good(strange, tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(strange.with_template("{{ 1 }}"))
    vocabulary = Vocabulary.load(path)
    assert vocabulary.info.chat_template == "{{ 1 }}"
    assert vocabulary.n_tokens == Vocabulary.load(builtin_draft()).n_tokens


def test_strange_files_differ_from_the_good_one_in_many_ways(strange):
    found = set(itertools.islice(strange, 100))
    assert len(found) > 80
    assert builtin_draft().read_bytes() not in found
    header = read_header(builtin_draft())
    assert min(map(len, (header.lengths, header.types, header.numbers, header.values))) > 8


def test_a_folder_of_strange_files_is_listed(strange, tmp_path):
    hostile = (strange.with_length(2**64 - 1), strange.nested(100_000), strange.cut(0.5))
    for number, content in enumerate((*hostile, *itertools.islice(strange, 150))):
        (tmp_path / f"{number}.gguf").write_bytes(content[: 1 << 16])
    (tmp_path / "good.gguf").symlink_to(builtin_draft())
    assert "good" in find_models(tmp_path, Hub())


@pytest.mark.real
async def test_programs_say_in_a_sentence_what_is_wrong_and_others_are_served(strange, tmp_path):
    tally = Tally(0, print)
    fuzzer = FileFuzzer(random.Random(1), tally, max_seconds=120.0)
    paths = [tmp_path / f"{number}.gguf" for number in range(2)]
    paths[0].write_bytes(strange.with_length(2**64 - 1))
    paths[1].write_bytes(strange.with_template(TEMPLATES[0]))
    await fuzzer.read_alone(paths[:1])
    (tmp_path / "good.gguf").symlink_to(builtin_draft())
    await fuzzer.read_folder(tmp_path, ["0", "1"])
    assert not [what for what in tally.counts if what.startswith("CRASH")]
