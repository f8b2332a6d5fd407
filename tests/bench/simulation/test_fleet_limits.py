"""What grows with a fleet."""

from bench.simulation import fleet_limits
from bench.simulation.coarse_fleet import FleetLoad
from tests.bench.simulation.fleets import spec, speeds


def test_among_more_backs_the_good_one_is_found_later():
    few, many = fleet_limits.connected_backs((8, 32))
    assert 0 < few["found_s"] < many["found_s"]


def test_backs_that_crowd_half_of_the_leads_move():
    (row,) = fleet_limits.moving((20,))
    assert 0 < row["moves"] <= 80


def test_routers_that_know_less_make_requests_wait_longer():
    load = FleetLoad(per_second=3.0, n_text=80.0)
    rows = fleet_limits.routing(spec(10, 10), load, speeds(), (10,), 300.0)
    waited = {(row["routers"], row["poll_s"]): row["waited"] for row in rows}
    assert waited[1, 1.0] < waited[16, 10.0]


def test_small_groups_wait_longer():
    load = FleetLoad(per_second=12.0, n_text=80.0)
    alone, together = fleet_limits.groups(spec(32, 32), load, speeds(), (1, 32), 200.0)
    assert alone["waited"] > together["waited"]
