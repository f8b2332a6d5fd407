import argparse

import pytest

from bench import speed


def cells(*arguments):
    parser = argparse.ArgumentParser()
    speed.add_grid_options(parser)
    return list(speed.configurations(parser.parse_args(arguments)))


def test_every_axis_is_combined():
    assert len(cells("--draft-costs", "0.02,0.1", "--temperatures", "0,1", "--rtt-ms", "0,2,20")) == 12


def test_without_a_back_neither_draft_nor_network_matters():
    without = [cell for cell in cells("--full") if cell.n_backs == 0]
    assert len(without) == 2
    assert {cell.temperature for cell in without} == {0.0, 1.0}


@pytest.mark.parametrize("cost", ["1.5", "0", "-0.1"])
def test_a_draft_that_costs_nothing_or_more_than_the_target_is_refused(cost):
    with pytest.raises(SystemExit):
        cells(f"--draft-costs={cost}")


def test_a_cell_is_named_by_what_is_special_about_it():
    assert str(speed.Configuration("0.4G:f16", "0.1", 0.0, 1, 0.0)) == "0.4G:f16, draft 0.1, T=0"
    assert str(speed.Configuration("0.4G:f16", "0.1", 1.0, 2, 20.0)).endswith("T=1, 2 backs, 20 ms")
