"""Machines on their own network: network namespaces, joined by veth pairs to a switch.

Sockets and programs that a thread opens or starts inside `Network.at(machine)` belong to that machine.
Names begin with the process id of the tests, so that they are unique and can be removed separately.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.network.slow_cable import SlowCable, open_tap

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_RUN = Path("/run/netns")
_IP = shutil.which("ip") or "ip"
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """A switch and machines 10.77.0.N, which reach each other. The context's end removes them all."""

    def __init__(self) -> None:
        self._prefix = f"duo{os.getpid()}"
        self._names: list[str] = []
        self._addresses: dict[str, str] = {}
        self._cables: list[SlowCable] = []

    def __enter__(self) -> Self:
        try:
            self._create("switch")
            self.run("switch", "ip link add bridge type bridge")
            self.run("switch", "ip link set bridge up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the namespaces, and with them all links. Programs in them must have ended."""
        for cable in self._cables:
            cable.close()
        self._cables.clear()
        for name in self._names:
            subprocess.run([_IP, "netns", "del", name], check=False, capture_output=True)
        self._names.clear()

    def add(self, machine: str) -> str:
        """Connect a new machine; return its address."""
        self._create(machine)
        self._cable(machine, "eth0", "switch", machine)
        return self._join(machine)

    def add_far(self, machine: str, delay_ms: int, loss_percent: int) -> str:
        """Like `add`, at the end of a long cable that delays this much in each direction. Raises OSError."""
        self._create(machine)
        with self.at(machine):
            inner = open_tap("eth0")
        with self.at("switch"):
            outer = open_tap(machine)
        self._cables.append(SlowCable((inner, outer), delay_ms / 1000, loss_percent / 100))
        self.run(machine, "ip link set eth0 up")
        self.run("switch", f"ip link set {machine} up")
        return self._join(machine)

    def add_behind(self, machine: str, router: str) -> None:
        """Add a machine whose connections leave with the address of `router`, which has to exist."""
        self._create(machine)
        self._cable(machine, "eth0", router, "inside")
        self.run(router, "ip address add 192.168.7.1/24 dev inside")
        self.run(machine, "ip address add 192.168.7.2/24 dev eth0")
        self.run(machine, "ip route add default via 192.168.7.1")
        self.run(router, "sysctl -qw net.ipv4.ip_forward=1")
        self.run(router, "nft add table ip nat")
        self.run(router, "nft add chain ip nat out { type nat hook postrouting priority 100 ; }")
        self.run(router, "nft add rule ip nat out oifname eth0 masquerade")

    def cut(self, machine: str) -> None:
        """Pull a machine's cable out of the switch. Neither side is notified."""
        self.run("switch", f"ip link set {machine} nomaster")

    def heal(self, machine: str) -> None:
        """Put a machine's cable back."""
        self.run("switch", f"ip link set {machine} master bridge")

    def lose(self, machine: str, loss_percent: int) -> None:
        """Lose a share of the packets that reach `machine`."""
        self.run(machine, "nft add table ip loss")
        self.run(machine, "nft add chain ip loss in { type filter hook input priority 0 ; }")
        self.run(machine, f"nft add rule ip loss in numgen random mod 100 < {loss_percent} drop")

    def narrow(self, machine: str, kilobits: int) -> None:
        """Let `machine` send this much each second. More data waits, and is lost after 50 ms."""
        self.run(machine, f"tc qdisc add dev eth0 root tbf rate {kilobits}kbit burst 4kb latency 50ms")

    def run(self, machine: str, command: str) -> str:
        """Run a command on `machine`, of words without quoting. Raises CalledProcessError."""
        words = [_IP, "netns", "exec", self._name(machine), *command.split()]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    @contextmanager
    def at(self, machine: str) -> Iterator[None]:
        """Put this thread on `machine`. Its sockets and child processes stay there."""
        with Path("/proc/thread-self/ns/net").open() as home, (_RUN / self._name(machine)).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def _name(self, machine: str) -> str:
        return f"{self._prefix}-{machine}"

    def _join(self, machine: str) -> str:
        """Connect the machine's cable to the switch; return its new address."""
        address = f"10.77.0.{len(self._addresses) + 1}"
        self._addresses[machine] = address
        self.run("switch", f"ip link set {machine} master bridge")
        self.run(machine, f"ip address add {address}/24 dev eth0")
        return address

    def _create(self, machine: str) -> None:
        name = self._name(machine)
        subprocess.run([_IP, "netns", "add", name], check=True, capture_output=True)
        self._names.append(name)
        self.run(machine, "ip link set lo up")

    def _cable(self, machine: str, plug: str, other: str, socket: str) -> None:
        self.run(machine, f"ip link add {plug} type veth peer name {socket} netns {self._name(other)}")
        self.run(machine, f"ip link set {plug} up")
        self.run(other, f"ip link set {socket} up")


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def why_not() -> str | None:
    """The reason why this machine cannot have such networks; None if it can."""
    if missing := [tool for tool in ("ip", "tc", "nft", "sysctl") if shutil.which(tool) is None]:
        return f"needs {' and '.join(missing)} (Debian: iproute2, nftables, procps)"
    if os.geteuid():
        return "needs root, to make network namespaces"
    try:
        with Network() as network:
            network.add("probe")
            network.run("probe", "nft add table ip probe")
    except (subprocess.CalledProcessError, OSError) as error:
        return f"this machine makes no network namespaces: {getattr(error, 'stderr', None) or error}"
    return None
