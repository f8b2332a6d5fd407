"""A short, seeded run of `bench fuzz`: neither side raises, logs an error or changes a text."""

import json
import logging
import random

import pytest

from bench import fuzz
from bench.fuzzing.mutations import Mutator
from bench.fuzzing.tally import UnexpectedErrors
from lead.backs import draft_limits, join_limits
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
