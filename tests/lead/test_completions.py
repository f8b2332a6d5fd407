import pytest

from lead.completions import Completions
from shared.sampling import SamplingParameters


@pytest.mark.parametrize(
    ("by_default", "asked", "private"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
async def test_a_request_decides_whether_backs_see_it_and_else_the_lead(house, by_default, asked, private):
    completions = Completions(house.sequences, house.engine, house.vocabulary, private_by_default=by_default)
    assert completions.start([1], SamplingParameters(seed=1), 1, private=asked).private == private
