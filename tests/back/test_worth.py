import pytest

from back.worth import SECONDS, DraftWorth


@pytest.fixture
def said(caplog):
    caplog.set_level("INFO", "back")
    return lambda: caplog.messages


def work(worth, *, n_tokens, n_right, n_wrong, start=0.0, n=51):
    """A step every 100 ms, for `SECONDS`."""
    for i in range(n):
        worth.learn(n_tokens, n_right, n_wrong, start + i / 10)


def test_tokens_that_came_with_the_lead_s_own_are_gained(said):
    work(DraftWorth(SECONDS), n_tokens=3, n_right=2, n_wrong=1)
    assert said() == ["+20.0 tokens/s, 67 % right"]


@pytest.mark.parametrize(
    ("n_right", "n_wrong", "why"),
    [
        (1, 0, "100 % of draft tokens are right but late"),
        (0, 1, "only 0 % of draft tokens are right"),
        (0, 0, "all drafts came too late"),
    ],
)
def test_a_back_that_gives_nothing_says_so_once_and_why(said, n_right, n_wrong, why):
    worth = DraftWorth(SECONDS)
    for i in range(3):
        work(worth, n_tokens=1, n_right=n_right, n_wrong=n_wrong, start=10 * i)
    (line,) = said()
    assert line.startswith(f"not worth it: +0.0 tokens/s, because {why}")


def test_time_without_work_does_not_count(said):
    worth = DraftWorth(SECONDS)
    work(worth, n_tokens=3, n_right=2, n_wrong=0, n=50)
    worth.rest()
    work(worth, n_tokens=3, n_right=2, n_wrong=0, start=1000, n=3)
    assert said() == ["+20.0 tokens/s, 100 % right"]


def test_a_prompt_is_no_work(said):
    worth = DraftWorth(SECONDS)
    worth.learn(1, 0, 0, 0.0)
    worth.learn(4096, 0, 0, 60.0)
    assert said() == []


def test_of_several_leads_the_line_names_the_one(said):
    work(DraftWorth(SECONDS, "http://desk:5555"), n_tokens=2, n_right=1, n_wrong=0)
    assert said()[0].startswith("http://desk:5555: +10.0")
