"""The door opens when it is told to, stays as it was over restarts, and keeps who may come in."""

import contextlib
import json

import pytest

from lead.http.middleware.auth import OWN_KEYS
from lead.pairing import door as module
from lead.pairing.door import Door
from shared.errors import ConfigError
from shared.pairing.invitation import fingerprint
from tests.lead.router.fakes import until


class Server:
    """What serves."""

    def __init__(self):
        self.states = []
        self.disconnected = []
        self.n_closed = 0

    def listen_also(self, listener, _, state):
        self.states.append((listener, state))
        return self

    def close(self):
        self.n_closed += 1

    def disconnect(self, number):
        self.disconnected.append(number)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def make(tmp_path, server):
    """Makes doors over one folder, as starts of one lead do."""

    def make(**options):
        options = {
            "listen": lambda host, port: f"{host}:{port}",
            "own_addresses": lambda: ["10.0.0.1"],
        } | options
        return Door(tmp_path / "lead", 5556, server, **options)

    return make


async def test_it_is_closed_and_writes_nothing_before_it_is_opened(make, tmp_path):
    assert not make().is_open
    assert not (tmp_path / "lead").exists()


async def test_it_opens_once_on_all_addresses(make, server):
    door = make()
    door.open()
    door.open()
    assert door.is_open
    assert server.states == [("0.0.0.0:5556", {OWN_KEYS: door})]


async def test_a_port_that_is_taken_is_an_error_and_it_stays_closed(make):
    def taken(*_):
        raise ConfigError("cannot listen")

    door = make(listen=taken)
    with pytest.raises(ConfigError, match="cannot listen"):
        door.open()
    assert not door.is_open


async def test_the_next_start_knows_that_it_was_open_and_who_joined(make):
    door = make()
    door.open()
    member, key = door.join(door.invite("client").secret, "desk", "10.0.0.2")
    again = make()
    assert again.was_open
    assert again.members.identify(key) == member.principal
    again.close()
    assert not make().was_open


async def test_who_joins_the_lead_before_while_this_one_starts_is_a_member(make):
    before = make()
    before.open()
    after = make()
    _, key = before.join(before.invite("back").secret, "desk", "10.0.0.2")
    before.close()
    assert after.members.identify(key) is None
    after.read()
    assert after.members.identify(key).name == "desk"
    assert not after.was_open


async def test_an_invitation_names_certificate_and_addresses(make, tmp_path):
    door = make()
    door.open()
    invitation = door.invite("back")
    assert invitation.addresses == ("10.0.0.1:5556",)
    assert invitation.fingerprint == fingerprint((tmp_path / "lead" / "certificate.pem").read_text())
    assert door.invite("back", ["fd00::1", "desk.lan"]).addresses == ("[fd00::1]:5556", "desk.lan:5556")


async def test_a_revoked_member_is_cut_off_now_and_after_a_restart(make, server):
    door = make()
    door.open()
    member, key = door.join(door.invite("back").secret, "desk", "10.0.0.2")
    assert door.revoke("desk")
    assert server.disconnected == [member.number]
    assert make().members.identify(key) is None
    assert not door.revoke("desk")


async def test_closing_cuts_members_off_who_stay_members(make, server):
    door = make()
    door.open()
    member, key = door.join(door.invite("back").secret, "desk", "10.0.0.2")
    door.close()
    assert (server.n_closed, server.disconnected) == (1, [member.number])
    assert make().members.identify(key) == member.principal


async def test_who_cannot_be_written_down_has_not_joined(make, tmp_path):
    door = make()
    door.open()
    secret = door.invite("back").secret
    for path in (tmp_path / "lead").iterdir():
        path.unlink()
    (tmp_path / "lead").rmdir()
    (tmp_path / "lead").touch()
    with pytest.raises(ConfigError, match="cannot write down"):
        door.join(secret, "desk", "10.0.0.2")
    assert list(door.members) == []


async def test_keys_are_not_written_down(make, tmp_path):
    door = make()
    door.open()
    _, key = door.join(door.invite("back").secret, "desk", "10.0.0.2")
    assert key not in (tmp_path / "lead" / "members.json").read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"members": [{"name": 1}]})])
def test_a_damaged_list_of_members_is_an_error(make, tmp_path, content):
    (tmp_path / "lead").mkdir()
    (tmp_path / "lead" / "members.json").write_text(content)
    with pytest.raises(ConfigError, match="cannot read who is a member"):
        make()


@pytest.fixture
def announced(make):
    """A door, and what is announced of it."""
    said = []

    @contextlib.contextmanager
    def announce(port, found):
        said.append((port, found))
        yield
        said.append("gone")

    return make(announce=announce), said


async def test_it_is_announced_once_while_a_code_lasts(announced, monkeypatch):
    door, said = announced
    door.open()
    await door.announce()
    await door.announce()
    assert said == [(5556, door.invite("back").fingerprint.hex())]
    monkeypatch.setattr(module, "INVITATION_SECONDS", 0.0)
    await door.announce()
    await until(lambda: said[1:] == ["gone"])
    await door.announce()
    door.close()
    await until(lambda: said[3:] == ["gone"])


async def test_at_its_end_a_lead_takes_leave_of_the_network(announced, make):
    door, said = announced
    door.open()
    await door.end()
    await door.announce()
    await door.end()
    assert said[1:] == ["gone"]
    assert make().was_open
