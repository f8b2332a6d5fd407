"""GenerationStats become sentences and tables."""

import pytest

from chat import report
from chat.answer import ChatAnswer, GenerationStats, SessionStats
from chat.wire import Chunk
from shared.diagnostics.lead_probe import BackReport


def answer_with(**timings):
    answer = ChatAnswer(lambda: 0.0)
    answer.read(Chunk.model_validate({"timings": {"predicted_n": 8, **timings}, "seed": 7}))
    return answer


@pytest.mark.parametrize(
    ("figures", "parts"),
    [
        (GenerationStats(1), ["1 token"]),
        (GenerationStats(8, 2.0), ["8 tokens", "4.0 tokens/s"]),
        (GenerationStats(8, 2.0, 6, 3), ["8 tokens", "4.0 tokens/s", "3 of 6 draft tokens accepted (50%)"]),
    ],
)
def test_figures_leave_out_what_is_unknown(figures, parts):
    assert report.figures(figures) == parts


def test_stats_before_the_first_answer():
    assert report.stats(SessionStats()) == "No answers yet."


def test_backs_are_a_table():
    backs = [
        BackReport(
            name="back-1",
            model="spec-demo-draft",
            transport="websocket",
            connected_seconds=12.3,
            n_drafts=10,
            n_draft_tokens=100,
            n_used_tokens=40,
            n_accepted_tokens=30,
            n_stale_drafts=2,
        ),
        BackReport(name="attic", model="tiny", transport="http", connected_seconds=7300),
    ]
    assert report.backs(backs) == (
        "name    model            link       since  drafts  tokens  used  accepted  stale  invalid\n"
        "back-1  spec-demo-draft  websocket    12s      10     100    40  30 (75%)      2        0\n"
        "attic   tiny             http          2h       0       0     0         0      0        0"
    )


def test_backs_in_a_narrow_terminal_are_paragraphs():
    shown = report.backs([BackReport(name="attic", model="tiny", n_drafts=3), BackReport(name="cellar")], 30)
    assert shown.startswith("attic\n  model     tiny\n")
    assert "  drafts    3\n" in shown
    assert "\ncellar\n" in shown
    assert max(map(len, shown.splitlines())) <= 30


def test_a_name_cannot_forge_a_row():
    assert len(report.backs([BackReport(name="a\nb", model="c\n")]).splitlines()) == 2


@pytest.mark.parametrize(
    ("found", "sentence"), [(None, "This server does not speculate."), ([], "No backs are connected.")]
)
def test_having_no_backs_is_explained(found, sentence):
    assert report.backs(found) == sentence


@pytest.mark.parametrize("columns", [39, 79, None])
def test_help_fits_the_terminal(columns):
    assert max(map(len, report.help_text(columns).splitlines())) <= (columns or 80)


def test_the_status_line_leaves_out_what_is_unknown():
    stats = SessionStats()
    assert report.status(None, stats, "") == ":help"
    stats.add(answer_with(predicted_per_second=4.0, draft_n=4, draft_n_accepted=3))
    assert report.status("big", stats, "2 backs") == (
        "big · 8 tokens · 4.0 tokens/s · 75% accepted · 2 backs · :help"
    )


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (60, "8 tokens · 4.0 tokens/s · 75% accepted · 2 backs · :help"),
        (53, "4.0 tokens/s · 75% accepted · 2 backs · :help"),
        (40, "4.0 tokens/s · 75% accepted · 2 backs"),
        (30, "4.0 tokens/s · 75% accepted"),
        (3, "4.0 tokens/s"),
    ],
)
def test_a_narrow_status_line_keeps_the_most_important_parts(columns, line):
    stats = SessionStats()
    stats.add(answer_with(predicted_per_second=4.0, draft_n=4, draft_n_accepted=3))
    assert report.status("a-big-model", stats, "2 backs", columns) == line


def test_progress_is_shown_before_the_first_token():
    assert report.progress(ChatAnswer(lambda: 0.0), "1 back") == (
        "waiting for the first token · 1 back · Ctrl-C stops it"
    )


@pytest.mark.parametrize(
    ("columns", "lines"),
    [(None, [["aa", "bb", "cc"]]), (7, [["aa", "bb"], ["cc"]]), (1, [["aa"], ["bb"], ["cc"]])],
)
def test_parts_fill_lines(columns, lines):
    assert report.filled(["aa", "bb", "cc"], columns) == lines
