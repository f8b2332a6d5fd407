"""Looking for leads, with a network of the test's making."""

import random

import pytest

from back import discover
from back.link import LostError
from shared.discovery import NoLeadError
from shared.errors import ConfigError


class Network:
    """Settings of a back whose searches give the entries of `looks` in turn: an address or an error."""

    def __init__(self, *looks):
        self.looks = list(looks)
        self.websocket_url = None

    def discovered(self):
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        self.websocket_url = look
        return self

    def tls(self):
        return None


def none():
    return NoLeadError("no lead is announced")


def test_it_looks_until_there_is_a_lead():
    pauses = []
    network = Network(none(), none(), none(), "ws://lead")
    assert discover.find(network, random.Random(1), pauses.append).websocket_url == "ws://lead"
    assert len(pauses) == 3
    assert pauses == sorted(pauses)


def test_that_there_is_none_is_said_once(caplog):
    caplog.set_level("INFO", "back")
    discover.find(Network(none(), none(), "ws://lead"), random.Random(1), lambda _: None)
    assert caplog.messages == ["no lead is announced (searching until there is one)"]


def test_of_several_leads_a_person_has_to_choose():
    with pytest.raises(ConfigError, match="several"):
        discover.find(Network(ConfigError("there are several leads")), random.Random(1))


class LosingLink:
    """A link that loses its lead each time it runs, and is refused by the last one."""

    def __init__(self, n_losses):
        self.n_losses = n_losses
        self.dialled = ["ws://first"]

    async def run(self, _follower):
        if len(self.dialled) > self.n_losses:
            raise ConfigError("refused")
        raise LostError("away")

    def set_lead(self, url, _tls):
        self.dialled.append(url)


async def test_a_lead_that_is_lost_is_looked_for_again(monkeypatch):
    monkeypatch.setattr(discover, "_FIRST_DELAY", 0.001)
    link = LosingLink(2)
    network = Network("ws://second", none(), "ws://third")
    with pytest.raises(ConfigError, match="refused"):
        await discover.follow(network, link, None, random.Random(1))
    assert link.dialled == ["ws://first", "ws://second", "ws://third"]
