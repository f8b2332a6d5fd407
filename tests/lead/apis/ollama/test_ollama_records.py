import math

import pytest

from lead.apis.ollama.ollama_records import keep_seconds
from shared.errors import RequestError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        (0, 0.0),
        (300, 300.0),
        (-1, math.inf),
        ("0", 0.0),
        ("-1", math.inf),
        ("90", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("-1m", math.inf),
        (1e18, math.inf),  # no date is so far away: a list of models in memory failed
    ],
)
def test_a_duration_is_seconds_or_as_go_writes_it(value, seconds):
    assert keep_seconds(value) == seconds


@pytest.mark.parametrize("value", ["soon", "5 m", "5x", "m", "nan", "5m-3s", float("nan")])
def test_anything_else_is_refused(value):
    with pytest.raises(RequestError, match="keep_alive"):
        keep_seconds(value)
