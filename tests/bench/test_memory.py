import json

import pytest

from bench.memory import growth, main


def row(tokens, **sizes):
    return {"tokens": tokens, "tokens_per_second": 1.0, **sizes}


def test_growth_is_a_slope_per_100_000_tokens_without_the_first_block():
    rows = [row(50_000, front=10.0), *(row(n * 50_000, front=100.0 + n) for n in range(2, 6))]
    assert growth(rows) == {"front": pytest.approx(2.0)}


def test_flat_memory_does_not_grow():
    assert growth([row(n, front=80.0, engine=90.0) for n in range(4)]) == {"front": 0.0, "engine": 0.0}


def test_a_process_that_came_later_is_left_out():
    rows = [row(1, front=1.0), row(2, front=1.0), row(3, front=1.0, back=5.0)]
    assert set(growth(rows)) == {"front"}


def test_two_blocks_are_too_few():
    assert growth([row(1, front=1.0), row(2, front=2.0)]) == {}


@pytest.mark.real
def test_a_short_run_reports_every_block(capsys):
    main(["--tokens", "48", "--every", "16", "--answer", "4", "--clients", "4", "--backs", "0"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["tokens"] for each in result["rows"]] == [16, 32, 48]
    assert set(result["growth"]) == {"front", "engine", "tokenizer"}
