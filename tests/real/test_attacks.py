"""Hostile requests against a real lead: each is answered, none with a fault of the lead's own."""

import argparse

import pytest

from bench.attacks import run

pytestmark = pytest.mark.real


def chosen(**settings):
    return argparse.Namespace(
        **{"seed": 7, "first": 0, "requests": 60, "clients": 4, "large": None, "only": ""} | settings
    )


@pytest.mark.parametrize(
    "settings",
    [chosen(), chosen(large=60_000, only="/v1/responses input: ")],
    ids=["small ones of all kinds", "large lists of items"],
)
def test_a_lead_survives_hostile_requests_and_ends_in_time(own_lead, settings):
    lead, url = own_lead("--drain-seconds", "10", "--ctx-size", "1024")
    _, failures = run(lead, url, settings)
    assert not failures
