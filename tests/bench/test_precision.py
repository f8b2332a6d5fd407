from bench.precision import records_of
from bench.summary import BASELINE, Row


def row(way, speed, speedup):
    return Row("cell", way, speed, speed, speed, speedup, 0.5, 1.0, 2.0, None, 1, 1, {})


def test_each_depth_stands_beside_the_baseline():
    records = records_of(
        "f16", [row(BASELINE, 10.0, 1.0), row("sync 2", 15.0, 1.5), row("sync 4", 20.0, 2.0)]
    )
    assert [(r["depth"], r["baseline"], r["speculative"], r["speedup"]) for r in records] == [
        (2, 10.0, 15.0, 1.5),
        (4, 10.0, 20.0, 2.0),
    ]


def test_a_way_without_a_depth_has_none():
    assert records_of("f16", [row(BASELINE, 1.0, 1.0), row("as started", 1.0, 1.0)])[0]["depth"] is None
