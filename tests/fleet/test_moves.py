import pytest

from fleet.moves import LeadNeed, Move, gain_of, plan_moves


def needs(**n_running):
    return [LeadNeed(lead, n) for lead, n in n_running.items()]


@pytest.mark.parametrize(
    ("leads", "placed", "moves"),
    [
        (needs(a=1, b=3), {"x": None}, [Move("x", "b")]),
        (needs(a=1), {"x": "gone"}, [Move("x", "a")]),
        (needs(a=0, b=4), {"x": "a", "y": "b"}, [Move("x", "b")]),
        (needs(a=1.0, b=3.2), {"x": "a", "y": "b"}, []),
        (needs(a=0, b=2), {"x": "a", "y": "b"}, []),
        ([LeadNeed("a", 2, gain=1.0), LeadNeed("b", 2, gain=3.0)], {"x": None}, [Move("x", "b")]),
    ],
    ids=[
        *("most sequences have none there", "its lead is gone", "from an idle lead to a busy one"),
        *("little would be gained", "no sequence needs another one", "texts gain more there"),
    ],
)
def test_a_back_goes_where_it_is_worth_most(leads, placed, moves):
    assert plan_moves(leads, placed, 2) == moves


def test_idle_leads_get_equally_many_backs():
    moves = plan_moves(needs(a=0, b=0, c=0), dict.fromkeys("uvwxyz"), 2)
    assert sorted(move.lead for move in moves) == ["a", "a", "b", "b", "c", "c"]


def test_after_the_moves_there_is_nothing_left_to_move():
    leads = needs(a=5, b=0, c=2, d=9)
    placed = {f"back-{number}": "abcd"[number % 4] for number in range(8)}
    placed |= {move.back: move.lead for move in plan_moves(leads, placed, 2)}
    assert plan_moves(leads, placed, 2) == []


def test_a_lead_s_gain_is_that_of_the_best_back_that_it_asks():
    backs = [{"gain": 1.0, "n_asked": 1}, {"gain": 3.0, "n_asked": 2}, {"gain": 9.0, "n_asked": 0}]
    assert gain_of(backs, 0.1) == pytest.approx(0.75)
    assert gain_of(backs[2:], 0.1) == pytest.approx(0.1, abs=0.01)


def test_a_lead_that_gained_nothing_gets_a_back_again_after_some_time():
    gain, n_looks = 0.0, 0
    while not plan_moves([LeadNeed("a", 2, 0.7), LeadNeed("b", 2, gain)], {"x": "a"}, 2):
        gain, n_looks = gain_of([], gain), n_looks + 1
        assert n_looks < 1000
    assert n_looks > 60
