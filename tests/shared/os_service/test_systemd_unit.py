import shlex

import pytest

from shared.errors import ConfigError
from shared.os_service.systemd_unit import ServiceFacts, SystemdService


def service(listen=None, **changes):
    facts = ServiceFacts("lead", 1, 1, listen=listen)
    return SystemdService(
        **{"name": "x", "facts": facts, "command": ("lead",), "is_system": True} | changes
    ).units()


def test_words_reach_the_program_as_they_are_except_for_the_credentials_folder():
    (line,) = (
        line
        for line in service(command=("/a b/lead", "100%", "$HOME", "it's", "", "%d/config"))[
            "x.service"
        ].splitlines()
        if line.startswith("ExecStart=")
    )
    words = shlex.split(line.removeprefix("ExecStart="))
    assert words == ["/a b/lead", "100%%", "$$HOME", "it's", "", "%d/config"]


@pytest.mark.parametrize(
    ("host", "listens"), [("127.0.0.1", "127.0.0.1:80"), ("::", "[::]:80"), ("0.0.0.0", "0.0.0.0:80")]
)
def test_a_socket_listens_where_the_lead_would(host, listens):
    assert f"ListenStream={listens}\n" in service(listen=(host, 80))["x.socket"]


def test_a_socket_needs_an_address():
    with pytest.raises(ConfigError, match="address"):
        service(listen=("localhost", 80))


def test_a_user_s_unit_asks_for_nothing_that_only_the_system_can_give():
    unit = service(is_system=False)["x.service"]
    for line in [
        *("DynamicUser", "ProtectSystem", "modprobe@"),
        *("CacheDirectory", "SupplementaryGroups", "LimitMEMLOCK"),
    ]:
        assert line not in unit
    assert "WantedBy=default.target" in unit
