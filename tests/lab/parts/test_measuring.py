from pathlib import Path

import pytest

from lab.measuring.contest import Way
from lab.measuring.measured_answer import MeasuredAnswer
from lab.measuring.questions import ChatQuestion
from lab.parts import peer
from lab.parts.ways import at_once


def test_what_clients_get_at_once_is_measured_together():
    asked = []

    def ask(question):
        asked.append(question.text)
        return MeasuredAnswer("a", 5, 9.0, 4, 3, first_seconds=len(asked))

    measured = at_once(Way("lead", ask), 3).ask(ChatQuestion("chat", "Hi", 1))
    assert sorted(asked) == ["0. Hi", "1. Hi", "2. Hi"]
    assert (measured.n_timed, measured.n_drafted, measured.n_accepted) == (15, 12, 9)
    assert (measured.text, measured.first_seconds) == ("a\na\na", 3)
    assert measured.seconds < 9


@pytest.mark.parametrize(
    ("help_text", "options"),
    [
        (
            "--spec-draft-n-max N  --spec-type none,draft-simple",
            "--spec-draft-n-max 5 --spec-draft-n-min 0 --spec-type draft-simple",
        ),
        ("--draft-max N", "--draft-max 5 --draft-min 0"),
    ],
)
def test_each_version_is_told_in_its_own_words_to_use_the_draft_model(help_text, options):
    arguments = peer.draft_arguments(help_text, Path("d.gguf"), 5)
    assert arguments == ["-md", "d.gguf", *options.split()]
