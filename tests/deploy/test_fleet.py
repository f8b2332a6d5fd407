"""The routers' files have the keys and ports of the README."""

import re

from tests.deploy.test_systemd import SMG, lines_of
from tests.docker.compose import FLEET as COMPOSE
from tests.docker.compose import ROOT, load, seconds

FOLDER = ROOT / "deploy/fleet"
SMG_GRACE = 180.0
"""SMG's --shutdown-grace-period-secs by default."""


def test_answers_may_finish_before_smg_is_killed():
    assert float(dict(lines_of(SMG))["TimeoutStopSec"]) > SMG_GRACE
    assert seconds(load(COMPOSE)["services"]["smg"]["stop_grace_period"]) > SMG_GRACE


def test_keys_are_on_no_command_line():
    assert "--key-file ${CREDENTIALS_DIRECTORY}/api" in dict(lines_of(SMG))["ExecStart"]
    assert "--key-file=/run/secrets/api" in load(COMPOSE)["services"]["smg"]["command"]


def test_only_the_door_is_published_and_only_on_loopback_unless_asked_for():
    services = load(COMPOSE)["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["door"]
    assert services["door"]["ports"] == ["127.0.0.1:8080:8080"]
    asked = load(COMPOSE, ADDRESS="192.168.1.9")["services"]["door"]["ports"]
    assert asked == ["192.168.1.9:8080:8080"]


def test_both_routers_get_the_same_leads():
    services = load(COMPOSE, LEAD_A="10.0.0.1:5555", LEAD_B="10.0.0.2:5555")["services"]
    assert services["smg"]["command"][-2:] == ["http://10.0.0.1:5555", "http://10.0.0.2:5555"]
    environment = services["door"]["environment"]
    assert (environment["FLEET_LEAD_A"], environment["FLEET_LEAD_B"]) == ("10.0.0.1:5555", "10.0.0.2:5555")


def test_the_door_gets_every_variable_that_its_configuration_names():
    named = set(re.findall(r'"\$\{(\w+)(?:\[\*\])?\}"', (FOLDER / "haproxy.cfg").read_text()))
    assert named == set(load(COMPOSE)["services"]["door"]["environment"])


def test_tokens_are_not_held_back():
    """Only the settings are read: in a test, delays of up to 200 ms per token look like a busy machine."""
    defaults = (FOLDER / "haproxy.cfg").read_text().partition("\ndefaults\n")[2].partition("\nfrontend")[0]
    assert "\toption http-no-delay\n" in defaults
