import asyncio
import contextlib
import json
import threading

import pytest
from cryptography import x509

from lead.http.middleware.auth import OWN_KEYS
from lead.pairing import pairing_server as module
from lead.pairing.members import NotInvitedError
from lead.pairing.pairing_server import PairingServer
from lead.server.listening import listen
from shared.cached_files import is_held
from shared.errors import ConfigError
from shared.pairing.invitation import fingerprint
from tests.lead.router.fakes import until


class Server:
    """A fake of the server that serves."""

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
    """Makes pairing servers over one folder, as starts of one lead do."""

    def make(**options):
        options = {
            "back_command": "back",
            "listen": lambda host, port: f"{host}:{port}",
            "own_addresses": lambda: ["10.0.0.1"],
        } | options
        return PairingServer(tmp_path / "lead", 5556, server, **options)

    return make


@pytest.fixture
def pairing(make):
    """An open pairing server."""
    pairing = make()
    pairing.open()
    return pairing


def join(pairing, role="back"):
    return pairing.join(pairing.invite(role).secret, "desk", "10.0.0.2")


async def test_it_is_closed_and_writes_nothing_before_it_is_opened(make, tmp_path):
    assert not make().is_open
    assert not (tmp_path / "lead").exists()


async def test_its_folder_is_held_from_the_first_entry_or_a_later_start_on_until_it_ends(make, tmp_path):
    first = make()
    first.invite("back")
    assert is_held(tmp_path / "lead")
    second = make()
    await first.end()
    assert is_held(tmp_path / "lead")
    await second.end()
    assert not is_held(tmp_path / "lead")


async def test_it_opens_once_on_all_addresses(pairing, server):
    pairing.open()
    assert pairing.is_open
    assert server.states == [(":::5556", {OWN_KEYS: pairing})]


async def test_without_ipv6_it_opens_on_those_of_ipv4(make, server):
    def listen(host, port):
        if host == "::":
            raise ConfigError("Address family not supported by protocol")
        return f"{host}:{port}"

    pairing = make(listen=listen)
    pairing.open()
    assert server.states == [("0.0.0.0:5556", {OWN_KEYS: pairing})]


async def test_a_port_that_is_taken_is_an_error_and_it_stays_closed(make):
    def taken(*_):
        raise ConfigError("cannot listen")

    pairing = make(listen=taken)
    with pytest.raises(ConfigError, match="cannot listen"):
        pairing.open()
    assert not pairing.is_open


async def test_the_port_that_is_taken_is_said_to_follow_from_the_leads(tmp_path, server):
    with listen("0.0.0.0", 0) as taken:
        pairing = PairingServer(tmp_path, taken.getsockname()[1], server, back_command="back")
        with pytest.raises(ConfigError, match=r"another program.*This port is the lead's port"):
            pairing.open()


@pytest.mark.usefixtures("pairing")
async def test_a_port_that_was_taken_at_the_start_is_tried_again(make):
    takers = [1, 1]  # one for each address family

    def listen(host, port):
        if takers:
            takers.pop()
            raise ConfigError("cannot listen")
        return f"{host}:{port}"

    again = make(listen=listen, announce=lambda *_: contextlib.nullcontext())
    await again.start()
    again.add("editor")  # what is saved meanwhile does not close it for later starts
    assert (again.is_open, make().is_meant_to_be_open) == (False, True)
    await until(lambda: again.is_open)
    await again.end()


async def test_the_next_start_knows_that_it_was_open_and_who_joined(make, pairing):
    member, key = join(pairing, "client")
    again = make()
    assert again.is_meant_to_be_open
    assert again.members.identify(key) == member.principal
    again.close()
    assert not make().is_meant_to_be_open


async def test_who_joins_the_lead_before_while_this_one_starts_is_a_member(make):
    before = make()
    before.open()
    after = make()
    _, key = join(before)
    before.close()
    assert after.members.identify(key) is None
    after.read()
    assert after.members.identify(key).name == "desk (joined)"
    assert not after.is_meant_to_be_open


async def test_an_invitation_names_authority_and_addresses(pairing, tmp_path):
    invitation = pairing.invite("back")
    assert invitation.addresses == ("10.0.0.1:5556",)
    assert invitation.fingerprint == fingerprint((tmp_path / "lead" / "ca.crt").read_text())
    given = ["fd00::1", "desk.lan", "example.org:8443", "[fd00::1]:8443"]
    reached = ("[fd00::1]:5556", "desk.lan:5556", "example.org:8443", "[fd00::1]:8443")
    assert pairing.invite("back", given).addresses == reached


async def test_a_name_that_was_given_is_certified_also_after_a_restart(make, pairing, tmp_path):
    def certified():
        served = x509.load_pem_x509_certificate((tmp_path / "lead" / "server.pem").read_bytes())
        names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.DNSName)

    pairing.add_addresses(["example.org:8443"])
    assert "example.org" in certified()
    make().open()
    assert "example.org" in certified()


async def test_who_joins_is_told_all_addresses(pairing, monkeypatch):
    monkeypatch.setattr(module.socket, "gethostname", lambda: "Desk.lan")
    pairing.add_addresses(["example.org:8443"])
    assert pairing.all_addresses() == ("10.0.0.1:5556", "desk.local:5556", "example.org:8443")


async def test_a_code_works_after_a_restart_as_one_of_a_takeover(make, pairing):
    secret = pairing.invite("client").secret
    member, _ = make().join(secret, "phone", "10.0.0.2")
    assert member.role.value == "client"


async def test_a_code_made_before_the_door_was_closed_is_void(make, pairing):
    secret = pairing.invite("back").secret
    pairing.close()
    pairing.open()
    for each in (pairing, make()):
        with pytest.raises(NotInvitedError):
            each.join(secret, "desk", "10.0.0.2")


async def test_the_key_of_a_program_is_kept_over_a_restart(make, pairing):
    member, key = pairing.add("open webui")
    assert make().members.identify(key) == member.principal


async def test_a_revoked_member_is_cut_off_now_and_after_a_restart(make, pairing, server):
    member, key = join(pairing)
    assert pairing.revoke("desk")
    assert server.disconnected == [member.number]
    assert make().members.identify(key) is None
    assert not pairing.revoke("desk")


async def test_closing_cuts_members_off_who_stay_members(make, pairing, server):
    member, key = join(pairing)
    pairing.close()
    assert (server.n_closed, server.disconnected) == (1, [member.number])
    assert make().members.identify(key) == member.principal


async def test_who_cannot_be_written_down_has_not_joined(pairing, tmp_path):
    secret = pairing.invite("back").secret
    for path in (tmp_path / "lead").iterdir():
        path.unlink()
    (tmp_path / "lead").rmdir()
    (tmp_path / "lead").touch()
    with pytest.raises(ConfigError, match="cannot save the list of members"):
        pairing.join(secret, "desk", "10.0.0.2")
    assert list(pairing.members) == []


async def test_keys_are_not_written_down(pairing, tmp_path):
    _, key = join(pairing)
    assert key not in (tmp_path / "lead" / "members.json").read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", json.dumps({"members": [{"name": 1}]})])
def test_a_damaged_list_of_members_is_an_error(make, tmp_path, content):
    (tmp_path / "lead").mkdir()
    (tmp_path / "lead" / "members.json").write_text(content)
    with pytest.raises(ConfigError, match="cannot read the list of members"):
        make()


@pytest.fixture
def announced(make):
    """A pairing server, and the list of its announcements."""
    said = []

    @contextlib.contextmanager
    def announce(port, found):
        said.append((port, found))
        yield
        said.append("gone")

    return make(announce=announce), said


async def test_it_is_announced_once_until_it_is_closed(announced):
    pairing, said = announced
    pairing.open()
    await pairing.announce()
    await pairing.follow_addresses()
    assert said == [(5556, pairing.fingerprint.hex())]
    pairing.close()
    await until(lambda: said[1:] == ["gone"])
    await pairing.follow_addresses()
    assert said[2:] == []


async def test_closed_while_it_is_being_announced_it_is_not_afterwards(make):
    begun, may_go_on, said = threading.Event(), threading.Event(), []

    @contextlib.contextmanager
    def announce(*_):
        begun.set()
        may_go_on.wait(10)
        said.append("here")
        yield
        said.append("gone")

    pairing = make(announce=announce)
    pairing.open()
    following = asyncio.ensure_future(pairing.follow_addresses())
    await asyncio.to_thread(begun.wait, 10)
    pairing.close()
    may_go_on.set()
    await following
    await until(lambda: said == ["here", "gone"])


async def test_with_another_address_it_is_certified_and_announced_anew(announced, tmp_path):
    pairing, said = announced
    pairing.open()
    await pairing.follow_addresses()
    before = (tmp_path / "lead" / "server.pem").read_bytes()
    pairing._own_addresses = lambda: ["10.0.0.77"]
    await pairing.follow_addresses()
    assert said[1:] == ["gone", said[0]]
    assert (tmp_path / "lead" / "server.pem").read_bytes() != before


async def test_without_multicast_it_is_open_all_the_same(make):
    def cannot(*_):
        raise ConfigError("pip install 'llama-duo[discover]'")

    pairing = make(announce=cannot)
    pairing.open()
    await pairing.follow_addresses()
    assert pairing.is_open
    with pytest.raises(ConfigError, match="discover"):
        await pairing.announce()


async def test_an_announcement_that_failed_is_tried_again(make):
    failures, said = [RuntimeError("the event loop is blocked")], []

    @contextlib.contextmanager
    def announce(*_):
        if failures:
            raise failures.pop()
        said.append("here")
        yield

    pairing = make(announce=announce)
    pairing.open()
    await pairing.follow_addresses()
    await pairing.follow_addresses()
    assert said == ["here"]


async def test_at_its_end_a_lead_takes_leave_of_the_network(announced, make):
    pairing, said = announced
    pairing.open()
    await pairing.end()
    await pairing.announce()
    await pairing.end()
    assert said[1:] == ["gone"]
    assert make().is_meant_to_be_open
