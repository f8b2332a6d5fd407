"""The lead that a back chooses among the leads that announce themselves."""

import socket
import sys
import threading
from types import SimpleNamespace
from typing import ClassVar

import pytest
import zeroconf
from zeroconf import ServiceInfo

from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.pairing import discovery
from shared.pairing.discovery import (
    JOIN_SERVICE,
    SERVICE,
    FoundLead,
    NoLeadError,
    SeveralLeadsError,
    choose,
    find_leads,
)


def nobody(_address, _port):
    return False


GPU, OLD = FoundLead("http://10.0.0.1:5555", "70B"), FoundLead("http://10.0.0.2:5555", "8B")


@pytest.mark.parametrize(
    ("found", "former", "chosen"),
    [([GPU], None, GPU), ([GPU, OLD], OLD.url, OLD), ([GPU], OLD.url, GPU)],
    ids=["the only one", "the former one", "another when that is gone"],
)
def test_a_lead_is_chosen(found, former, chosen):
    assert choose(found, former=former) is chosen


def test_of_several_leads_a_person_chooses():
    with pytest.raises(ConfigError, match=r"several leads .*10\.0\.0\.1:5555 \(70B\), .*10\.0\.0\.2"):
        choose([GPU, OLD])


def test_a_former_lead_without_https_is_not_chosen_where_https_is_asked_for():
    with pytest.raises(ConfigError, match="no lead with HTTPS"):
        choose([GPU], with_https=True, former=GPU.url)


def test_of_very_many_leads_a_few_are_listed():
    leads = [FoundLead(f"http://10.0.0.{i}:5555", "x") for i in range(100)]
    with pytest.raises(SeveralLeadsError, match=r"10\.0\.0\.7:5555 \(x\) and 92 more$"):
        choose(leads)


def test_all_announcements_are_read_at_the_same_time():
    """Each reading waits until all have begun."""
    names = [str(i) for i in range(discovery._MAX_LEADS)]
    together = threading.Barrier(len(names), timeout=60)

    def read(name):
        together.wait()
        return discovery._describe(["10.0.0.1"], 1 + int(name), "x", "http")

    assert len(discovery.resolve(names, read, nobody)) == len(names)


def test_an_announcement_without_an_address_or_an_answer_is_no_lead():
    empty = ServiceInfo(SERVICE, f"x.{SERVICE}", port=1, properties={})
    assert discovery.resolve(["a", "b"], {"a": None, "b": empty}.get, nobody) == []


def test_few_addresses_of_a_lead_are_tried():
    tried = []
    info = discovery._describe([f"10.0.0.{i}" for i in range(200)], 5555, "70B", "http")
    discovery._lead(info, lambda address, _: tried.append(address))
    assert len(tried) == 4


def test_only_so_many_announcements_are_read(monkeypatch):
    class Listener:
        n_read = 0

        def __init__(self, **_):
            pass

        def close(self):
            pass

        def get_service_info(self, *_):
            Listener.n_read += 1

    def browse(_listener, _type, handlers):
        for i in range(5000):
            handlers[0](name=str(i), state_change=zeroconf.ServiceStateChange.Added)

    monkeypatch.setattr(zeroconf, "Zeroconf", Listener)
    monkeypatch.setattr(zeroconf, "ServiceBrowser", browse)
    monkeypatch.setattr(discovery, "_MORE_SECONDS", 0.0)
    assert find_leads(60.0) == []
    assert Listener.n_read == discovery._MAX_LEADS


def test_none_is_an_error_that_says_what_to_do():
    with pytest.raises(ConfigError, match="Start a lead with --announce"):
        choose([])


def test_of_several_addresses_the_one_that_answers_counts():
    info = discovery._describe(["172.17.0.1", "10.0.0.1", "10.0.0.2"], 5555, "70B", "http")
    found = discovery._lead(info, lambda address, _: address.startswith("10."))
    assert found.url.startswith("http://10.0.0.")


@pytest.mark.parametrize(
    ("address", "scheme", "name", "found"),
    [
        ("10.0.0.1", "https", "70B", FoundLead("https://10.0.0.1:5555", "70B")),
        ("::1", "http", "70B", FoundLead("http://[::1]:5555", "70B")),
        ("10.0.0.1", "http", "7\x1b[2J0\nB", FoundLead("http://10.0.0.1:5555", "7␛[2J0 B")),
        ("10.0.0.1", "http", "x" * 300, FoundLead("http://10.0.0.1:5555", "x" * 200)),
    ],
    ids=["as it was announced", "IPv6 in brackets", "names do nothing to a terminal", "a long name is cut"],
)
def test_a_lead_is_found_as_it_was_announced(address, scheme, name, found):
    assert discovery._lead(discovery._describe([address], 5555, name, scheme), nobody) == found


def test_an_address_answers_if_somebody_listens_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert discovery.answers("127.0.0.1", port)
    assert not discovery.answers("127.0.0.1", port)


@pytest.mark.parametrize("properties", [{}, {"scheme": "ftp"}, {"scheme": "http"}])
def test_one_that_does_not_say_https_has_none(properties):
    info = ServiceInfo(SERVICE, f"x.{SERVICE}", port=1, parsed_addresses=["10.0.0.1"], properties=properties)
    assert discovery._lead(info, nobody) == FoundLead("http://10.0.0.1:1", "")


def test_where_https_is_asked_for_no_other_lead_is_chosen():
    safe = FoundLead("https://10.0.0.3:5555", "70B")
    assert choose([GPU, safe], with_https=True) is safe
    with pytest.raises(ConfigError, match="no lead with HTTPS"):
        choose([GPU], with_https=True)


def test_without_zeroconf_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(ConfigError, match=r"llama-duo\[discover\]"):
        find_leads(0.0)


def test_names_fit_into_a_dns_label(monkeypatch):
    monkeypatch.setattr(discovery.socket, "gethostname", lambda: "gpu.example.org")
    label = discovery._label("Ünsinn-3.1-" * 9, "10.0.0.1", 5555)
    assert len(label) <= 63
    assert "." not in label
    assert discovery._label("8B", "10.0.0.1", 5555) == "8B on gpu-example-org at 10-0-0-1:5555"


def test_a_lead_on_loopback_is_not_announced(complaint):
    said = complaint(LeadSettings.from_command_line, ["--announce"])
    assert "other machines cannot reach a loopback address" in said


class Network:
    """A stand-in for zeroconf: the announcements by name."""

    infos: ClassVar = {}

    def __init__(self, **_):
        pass

    def close(self):
        pass

    def register_service(self, info, **_):
        self.infos[info.name] = info

    def get_service_info(self, _service, name, _milliseconds):
        """Return the first address that has arrived, as zeroconf does. Its cache has the others."""
        if (info := self.infos.get(name)) is None:
            return None
        addresses = info.parsed_addresses()
        known = addresses[:1]
        return SimpleNamespace(
            port=info.port,
            parsed_addresses=lambda: known,
            load_from_cache=lambda _: known.extend(addresses[1:]),
        )


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(zeroconf, "Zeroconf", Network)
    monkeypatch.setattr(zeroconf, "ServiceBrowser", lambda *_, **__: None)
    monkeypatch.setattr(Network, "infos", {})
    monkeypatch.setattr(discovery, "own_addresses", lambda: ["10.0.0.1", "10.0.0.2"])


@pytest.mark.usefixtures("network")
def test_a_door_is_found_by_its_fingerprint_whatever_else_is_announced():
    for i in range(40):
        Network().register_service(pairing_info(f"{i:02}"))
    with discovery.announce_pairing(5556, "aa"):
        assert discovery.find_pairing("aa", 1.0) == ("10.0.0.1:5556", "10.0.0.2:5556")
    assert discovery.find_pairing("cc", 1.0) == ()


@pytest.mark.usefixtures("network")
def test_a_machine_too_busy_to_search_finds_no_lead(monkeypatch):
    def fail(*_):
        raise zeroconf.EventLoopBlocked

    monkeypatch.setattr(Network, "get_service_info", fail)
    with pytest.raises(NoLeadError, match="EventLoopBlocked"):
        discovery.find_pairing("aa", 1.0)


def pairing_info(fingerprint):
    return ServiceInfo(JOIN_SERVICE, f"{fingerprint}.{JOIN_SERVICE}", port=9, parsed_addresses=["10.0.0.9"])


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("desk", "desk:5556"),
        ("10.0.0.1", "10.0.0.1:5556"),
        ("example.org:8443", "example.org:8443"),
        ("fd00::5", "[fd00::5]:5556"),
        ("[fd00::5]", "[fd00::5]:5556"),
        ("[fd00::5]:8443", "[fd00::5]:8443"),
    ],
)
def test_a_host_may_have_a_port_of_its_own(host, address):
    assert discovery.with_port(host, 5556) == address


@pytest.mark.parametrize("host", ["a:99999", "[desk]", "a:b"])
def test_what_is_no_host_is_an_error(host):
    with pytest.raises(ValueError, match=r".+"):
        discovery.with_port(host, 5556)


@pytest.mark.parametrize(
    ("adapters", "own"),
    [
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["fd00::1", "2a00::1", "10.0.0.1"]}, ["10.0.0.1", "fd00::1"]),
        ({"lo": ["127.0.0.1", "::1"], "eth0": ["fe80::1%eth0", "2a00::1"]}, ["2a00::1"]),
        ({"lo": ["127.0.0.1"]}, []),
    ],
    ids=["IPv4", "only public IPv6", "no network"],
)
def test_own_addresses_are_those_that_other_machines_may_use(monkeypatch, adapters, own):
    def found():
        return {
            name: [
                SimpleNamespace(address=each, family=socket.AF_INET6 if ":" in each else socket.AF_INET)
                for each in addresses
            ]
            for name, addresses in adapters.items()
        }

    monkeypatch.setattr("psutil.net_if_addrs", found)
    assert discovery.own_addresses() == own


@pytest.mark.parametrize("error", [OSError(101, "Network is unreachable"), RuntimeError("No interfaces")])
def test_without_multicast_there_is_a_sentence(monkeypatch, error):
    def fail(**_):
        raise error

    monkeypatch.setattr("zeroconf.Zeroconf", fail)
    with (
        pytest.raises(ConfigError, match=r"announce this machine by multicast: .*N"),
        discovery.announced("10.0.0.1", 5555, "a"),
    ):
        pass
    with pytest.raises(NoLeadError, match=r"cannot send multicast: .*N"):
        discovery.find_leads(0.0)
