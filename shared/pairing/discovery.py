"""Leads on the local network: announced and found by multicast DNS, with zeroconf (an extra, `discover`).

An announcement is not authenticated: any machine on the network can announce a lead, and receives the key of
a back that connects. So discovery is off by default on both sides, and meant for trusted networks.
"""

import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shared.errors import ConfigError, NoLeadError, SeveralLeadsError
from shared.protocol import PROTOCOL_VERSION
from shared.settings.server_url import Scheme
from shared.terminal import one_line

if TYPE_CHECKING:  # an extra, imported when it is asked for
    from zeroconf import ServiceInfo, Zeroconf

log = logging.getLogger("discovery")

SERVICE = "_llama-duo._tcp.local."
JOIN_SERVICE = "_llama-duo-join._tcp.local."
"""The mDNS service of pairing ports. The name of an announcement is the fingerprint of the lead's CA, so one
query finds the lead, whatever other machines announce.
"""
_READ_MS = 3000
"""Time-out for the details of a lead whose name is known."""
_MORE_SECONDS = 2.5
"""The wait for further leads after the first; an answer may be held back for a second (RFC 6762)."""
_MAX_NAME_BYTES = 200
"""A property in multicast DNS has at most 255 bytes, including its key."""
_KNOCK_SECONDS = 1.0
_MAX_LEADS = 32
"""The maximum number of leads. Further announcements are ignored: real networks have fewer leads, but any
machine can announce any number of leads.
"""
_MAX_ADDRESSES = 4
"""The maximum number of addresses of a lead that are tried."""
_MAX_LISTED = 8
_NO_MULTICAST = (OSError, RuntimeError)
"""The errors that zeroconf raises without a network; RuntimeError if no interface has an IPv4 address."""


@dataclass(frozen=True, slots=True, order=True)
class FoundLead:
    """A lead that announces itself: its URL and model."""

    url: str
    name: str

    def __str__(self) -> str:
        return f"{self.url} ({self.name})"


@contextlib.contextmanager
def announced(host: str, port: int, name: str, scheme: Scheme = "http") -> Iterator[None]:
    """Announce a lead that listens on `host` and `port`, until the context is left.

    Blocks for up to two seconds on entering. Raises ConfigError.
    """
    addresses = own_addresses() if host in {"0.0.0.0", "::"} else [host]
    info = _describe(addresses, port, name, scheme)
    with _registered(info, allow_name_change=True):
        log.info("announced on the local network as %s", info.name.removesuffix(f".{SERVICE}"))
        yield


@contextlib.contextmanager
def announce_pairing(port: int, fingerprint: str) -> Iterator[None]:
    """Announce this lead's pairing port under the fingerprint of its CA, in hexadecimal.

    Blocks as `announced` does. Raises ConfigError.
    """
    info = _zeroconf().ServiceInfo(
        JOIN_SERVICE, f"{fingerprint}.{JOIN_SERVICE}", port=port, parsed_addresses=own_addresses()
    )
    # A lead that takes over has the name of the one before.
    with _registered(info, cooperating_responders=True):
        yield


@contextlib.contextmanager
def _registered(info: "ServiceInfo", **options: bool) -> Iterator[None]:
    zeroconf = _zeroconf()
    try:
        announcer = zeroconf.Zeroconf(ip_version=zeroconf.IPVersion.V4Only)
    except _NO_MULTICAST as error:
        raise ConfigError(f"cannot announce this machine by multicast: {error}") from error
    with contextlib.closing(announcer):
        try:
            announcer.register_service(info, **options)
        except zeroconf.Error as error:
            raise ConfigError(f"--announce: cannot register {info.name!r}: {error}") from error
        yield


def find_leads(seconds: float) -> list[FoundLead]:
    """Return the leads that answer within `seconds`. The search ends a few seconds after the first answer.

    Raises ConfigError, and NoLeadError while this machine has no network.
    """
    with _browsing(SERVICE, seconds) as (names, read):
        return resolve(names, read, answers)


def find_pairing(fingerprint: str, seconds: float) -> tuple[str, ...]:
    """Return host:port of the pairing port that a lead with this fingerprint announces; empty if none is
    found within `seconds`.

    Announcements are not trusted: a client that connects compares keys. Raises ConfigError.
    """
    with _listening() as listener:
        # What it hears is another way to the answer: replies to the question alone can go to another program.
        _zeroconf().ServiceBrowser(listener, JOIN_SERVICE, handlers=[lambda **_: None])
        info = listener.get_service_info(JOIN_SERVICE, f"{fingerprint}.{JOIN_SERVICE}", round(1000 * seconds))
        if info is None:
            return ()
        info.load_from_cache(listener)  # until now it has the first address that was read
    return tuple(with_port(address, info.port or 0) for address in info.parsed_addresses()[:_MAX_ADDRESSES])


@contextlib.contextmanager
def _listening() -> Iterator["Zeroconf"]:
    """Raises ConfigError, NoLeadError."""
    zeroconf = _zeroconf()
    try:
        listener = zeroconf.Zeroconf(ip_version=zeroconf.IPVersion.V4Only)
    except _NO_MULTICAST as error:
        raise NoLeadError(f"cannot send multicast: {error}") from error
    with contextlib.closing(listener):
        try:
            yield listener
        except zeroconf.Error as error:  # EventLoopBlocked, on a busy machine
            raise NoLeadError(f"the search by multicast failed: {error!r}") from error


@contextlib.contextmanager
def _browsing(
    service: str, seconds: float
) -> Iterator[tuple[list[str], Callable[[str], "ServiceInfo | None"]]]:
    """Yield the names announced within `seconds`, and a function that reads one of them.

    Raises ConfigError, NoLeadError.
    """
    zeroconf = _zeroconf()
    names: dict[str, None] = {}
    heard = threading.Event()

    def on_change(*, name: str, state_change: object, **_: object) -> None:
        if state_change is zeroconf.ServiceStateChange.Added and len(names) < _MAX_LEADS:
            names[name] = None
            heard.set()

    with _listening() as listener:
        zeroconf.ServiceBrowser(listener, service, handlers=[on_change])
        if heard.wait(seconds):
            threading.Event().wait(_MORE_SECONDS)
        yield list(names), lambda name: listener.get_service_info(service, name, _READ_MS)


def resolve(
    names: Sequence[str], read: Callable[[str], "ServiceInfo | None"], reaches: Callable[[str, int], bool]
) -> list[FoundLead]:
    """Resolve the leads with these names concurrently; leads without an address are left out."""

    def find(name: str) -> FoundLead | None:
        info = read(name)
        return _lead(info, reaches) if info and info.parsed_addresses() else None

    with ThreadPoolExecutor(_MAX_LEADS, "discovery") as pool:
        return sorted({lead for lead in pool.map(find, names) if lead})


def choose(found: Iterable[FoundLead], *, with_https: bool = False, former: str | None = None) -> FoundLead:
    """Return the lead with the URL `former` if it was found, else the only lead found.

    with_https: count only leads with HTTPS. Raises NoLeadError, SeveralLeadsError.
    """
    leads = usable(found, with_https=with_https)
    if known := [each for each in leads if each.url == former]:
        return known[0]
    if len(leads) > 1:
        more = f" and {len(leads) - _MAX_LISTED} more" if len(leads) > _MAX_LISTED else ""
        listed = ", ".join(map(str, leads[:_MAX_LISTED])) + more
        raise SeveralLeadsError(
            f"several leads are announced. Set --lead to one of them, or use --discover-all: {listed}"
        )
    return leads[0]


def usable(found: Iterable[FoundLead], *, with_https: bool = False) -> list[FoundLead]:
    """Return all leads, or only leads with HTTPS; raises NoLeadError if there are none."""
    leads = [each for each in found if each.url.startswith("https:") or not with_https]
    if leads:
        return leads
    if with_https:
        raise NoLeadError(
            "no lead with HTTPS is announced on this network. Start a lead with --announce, "
            "--ssl-cert-file and --ssl-key-file, or set --lead"
        )
    raise NoLeadError("no lead is announced on this network. Start a lead with --announce, or set --lead")


def own_addresses() -> list[str]:
    """Return the addresses at which other machines may reach this one, the address of the default route
    first.

    IPv4 addresses, and unique local addresses of IPv6. If there are none of these, public IPv6 addresses,
    which change.
    """
    import psutil  # noqa: PLC0415 - only who is announced, or invites, needs it

    parsed = [
        ipaddress.ip_address(each.address)
        for adapter in psutil.net_if_addrs().values()
        for each in adapter
        if each.family in {socket.AF_INET, socket.AF_INET6}
    ]
    found = [each for each in parsed if not (each.is_loopback or each.is_link_local)]
    lasting = [each for each in found if each.version == 4 or each.is_private] or found  # noqa: PLR2004 - IPv4
    outward = _outward_address()
    return [str(each) for each in sorted(lasting, key=lambda each: (str(each) != outward, each.version))]


def with_port(host: str, port: int) -> str:
    """Return `host`:`port` as in a URL; a port in `host` (`name:8443`, `[::1]:8443`) takes precedence."""
    parts = urlsplit(f"//[{host}]" if host.count(":") > 1 and not host.startswith("[") else f"//{host}")
    name = parts.hostname or ""
    return f"[{name}]:{parts.port or port}" if ":" in name else f"{name}:{parts.port or port}"


def _outward_address() -> str | None:
    """Return the address of the default route; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: an address for documentation
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _label(name: str, address: str, port: int) -> str:
    """Return a name of at most 63 bytes (RFC 6763), without dots, which would end it.

    The address makes the name unique even if two machines have the same host name. Otherwise a conflict would
    show only if the other lead answers in time.
    """
    place = f" at {address}:{port}".replace(".", "-")
    words = f"{one_line(name)} on {socket.gethostname()}".replace(".", "-")
    return words.encode("ascii", "replace")[: 60 - len(place)].decode("ascii").strip() + place


def _describe(addresses: list[str], port: int, name: str, scheme: Scheme) -> "ServiceInfo":
    described: ServiceInfo = _zeroconf().ServiceInfo(
        SERVICE,
        f"{_label(name, next(iter(addresses), 'nowhere'), port)}.{SERVICE}",
        port=port,
        parsed_addresses=addresses,
        properties={
            "protocol": str(PROTOCOL_VERSION),
            "model": name.encode("utf-8", "replace")[:_MAX_NAME_BYTES],
            "scheme": scheme,
        },
    )
    return described


def _lead(info: "ServiceInfo", reaches: Callable[[str, int], bool]) -> FoundLead:
    """Return the lead with an IP address: an attacker could announce a host name for which it has a valid
    certificate.

    A machine has several addresses, some of containers and tunnels; the first that `reaches` accepts is used.
    """
    model = (info.properties.get(b"model") or b"").decode("utf-8", "replace")
    scheme = "https" if info.properties.get(b"scheme") == b"https" else "http"
    port, addresses = info.port or 0, info.parsed_addresses()[:_MAX_ADDRESSES]
    address = next((each for each in addresses if reaches(each, port)), addresses[0])
    host = f"[{address}]" if ":" in address else address
    return FoundLead(f"{scheme}://{host}:{port}", one_line(model[:_MAX_NAME_BYTES]))


def answers(address: str, port: int) -> bool:
    """Return whether a server accepts connections there, within a second."""
    try:
        socket.create_connection((address, port), _KNOCK_SECONDS).close()
    except OSError:
        return False
    return True


def _zeroconf() -> ModuleType:
    try:
        import zeroconf  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "finding leads on the network needs zeroconf. Install it: pip install 'llama-duo[discover]'"
        ) from None
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # it logs a trace when an address goes
    return zeroconf
