"""The data that a machine keeps of the lead that it joined. tests/lead/pairing/test_routes.py joins."""

import contextlib
import datetime as dt
import errno
import json
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from lead.pairing.certificate import Authority
from shared.errors import ConfigError
from shared.pairing import joined_lead as module
from shared.pairing.invitation import fingerprint
from shared.pairing.joined_lead import JoinedLead, fetch_authority
from tests.http_server import HttpServer, QuietHandler


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "llama-duo" / "joined" / "back"
    folder.mkdir(parents=True)
    return folder


class Certificate(QuietHandler):
    """Gives the certificate of its lead's CA."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.authority.certificate.encode())


@pytest.fixture
def serve(tmp_path):
    """Serves as the lead whose CA is in the folder of this name; gives the CA and host:port."""
    with contextlib.ExitStack() as stack:

        def serve(name, *hosts):
            server = HttpServer(Certificate)
            server.authority = Authority(tmp_path / name, hosts)
            server.socket = server.authority.context.wrap_socket(server.socket, server_side=True)
            stack.enter_context(server)
            return server.authority, f"127.0.0.1:{server.server_port}"

        yield serve


@pytest.fixture
def keep(folder):
    """Saves a membership."""

    def keep(certificate, *addresses):
        (folder / "certificate.pem").write_text(certificate)
        (folder / "lead.json").write_text(json.dumps({"addresses": addresses, "key": "k"}))

    return keep


@pytest.fixture(autouse=True)
def announced(monkeypatch):
    """The announcements by fingerprint, which a test may change."""
    found = {}
    monkeypatch.setattr(module, "find_pairing", lambda pin, _: found.get(pin, ()))
    return found


@pytest.fixture
def nobody():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def find():
    return JoinedLead.find("back", "desk", None)


def test_the_lead_is_the_one_with_its_key_wherever_it_is(keep, serve, nobody, folder):
    authority, here = serve("lead", "desk")
    _, another = serve("another", "desk")
    keep(authority.certificate, nobody, another, here)
    assert find().url == f"https://{here}"
    assert json.loads((folder / "lead.json").read_text())["addresses"][0] == here, "the next time it is first"


def test_with_another_address_it_is_found_by_its_announcement(keep, serve, announced):
    authority, here = serve("lead", "desk")
    _, another = serve("another", "desk")
    keep(authority.certificate, another)
    announced[fingerprint(authority.certificate).hex()] = (another, here)
    assert find().url == f"https://{here}"


def test_one_that_does_not_answer_may_come_back(keep, serve, nobody):
    _, another = serve("another", "desk")
    authority, _ = serve("lead", "desk")
    keep(authority.certificate, nobody, another)
    assert find().url == f"https://{nobody}"


def test_a_member_from_before_there_was_a_ca_gets_its_certificate(keep, serve, folder, tmp_path):
    """The lead's own certificate then had the key that its CA has now."""
    authority, here = serve("lead", "desk")
    key = serialization.load_pem_private_key((tmp_path / "lead" / "key.pem").read_bytes(), None)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "llama-duo on desk")])
    before = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    keep(before.public_bytes(serialization.Encoding.PEM).decode(), here)
    assert find().url == f"https://{here}"
    assert (folder / "certificate.pem").read_text() == authority.certificate


def test_a_certificate_that_was_made_anew_is_fetched(keep, serve, folder):
    before, _ = serve("lead", "desk")
    certificate = before.certificate
    after, here = serve("lead", "desk", "desk.example.org")
    keep(certificate, here)
    assert find().url == f"https://{here}"
    assert (folder / "certificate.pem").read_text() == after.certificate != certificate


def test_addresses_of_another_network_are_tried_at_the_same_time(keep, serve, monkeypatch):
    """Each attempt takes seconds."""
    authority, _ = serve("lead", "desk")
    keep(authority.certificate, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
    others, asked = threading.Barrier(3), []

    def in_vain(address, *_):
        asked.append(address)
        if address != "10.0.0.1:1":
            others.wait(10)

    monkeypatch.setattr(module, "_authority", in_vain)
    assert find().url == "https://10.0.0.1:1"
    assert len(asked) == 4


def test_an_address_that_cannot_be_saved_is_used(keep, serve, nobody, monkeypatch):
    """The home folder may be read-only."""
    authority, here = serve("lead", "desk")
    keep(authority.certificate, nobody, here)

    def cannot(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(module, "write_private", cannot)
    assert find().url == f"https://{here}"


@pytest.mark.parametrize("answer", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n"])
def test_an_odd_certificate_is_none(serve, monkeypatch, answer):
    authority, here = serve("lead", "desk")
    pin = fingerprint(authority.certificate)
    assert fetch_authority(here, pin) == authority.certificate
    monkeypatch.setattr(authority, "certificate", answer)
    assert fetch_authority(here, pin) is None


@pytest.mark.parametrize("has_own", [False, True], ids=["alone", "with its own"])
def test_who_gives_the_certificate_of_the_ca_is_not_the_lead(serve, keep, has_own):
    """Anyone can fetch the CA's certificate from the lead."""
    authority, here = serve("lead", "desk")
    impostor, there = serve("impostor", "desk")
    impostor.certificate = authority.certificate + impostor.certificate * has_own
    assert fetch_authority(there, fingerprint(authority.certificate)) is None
    keep(authority.certificate, there, here)
    assert find().url == f"https://{here}"


@pytest.mark.parametrize("oid", ["2a8648ce3d030107", "2a8648ce3d0201"], ids=["curve", "key"])
def test_a_certificate_with_an_unknown_kind_of_key_is_none(serve, monkeypatch, oid):
    authority, here = serve("lead", "desk")
    pin = fingerprint(authority.certificate)
    known = bytes.fromhex(oid)
    der = ssl.PEM_cert_to_DER_cert(authority.certificate).replace(known, known[:-1] + b"\x09")
    monkeypatch.setattr(authority, "certificate", ssl.DER_cert_to_PEM_cert(der))
    assert fetch_authority(here, pin) is None


@pytest.mark.parametrize("address", ["[desk", "desk:port", "d\ufffdsk:5556"])
def test_nobody_is_at_what_is_no_address(address):
    assert fetch_authority(address, b"x") is None


@pytest.mark.parametrize(
    "content", ["", "{}", '{"addresses": 5, "key": "k"}', '{"addresses": [], "key": "k"}']
)
def test_a_damaged_file_is_a_sentence(folder, content):
    (folder / "lead.json").write_text(content)
    with pytest.raises(ConfigError, match="Join the lead again"):
        JoinedLead.find("back", "desk", None)
