"""The texts of systemd units, for the system or for a user."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import ConfigError

_RUNNING = """\
Restart=on-failure
RestartSec=5
# After status 1 and 2, a person has to change something first.
RestartPreventExitStatus=1 2
TasksMax=1024
# The pages of a model's file count, but the kernel drops them first. So this limit may be smaller than the
# model, but the KV cache and all other data that are not on a GPU must fit. It keeps the rest of the machine
# alive.
MemoryMax=90%
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
# A system call that is not in the list fails, but does not end the process. Not MemoryDenyWriteExecute:
# Python's ctypes needs memory that is writable and executable.
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""
_ENGINE = """\
# SIGTERM goes only to the lead, which stops its engine and its back itself.
KillMode=mixed
# If memory runs out, the kernel kills the engine, which the lead starts again: not a reason to stop the lead.
OOMPolicy=continue
"""
_SYSTEM_START = """\
# CUDA needs this module, which the service may not load itself. Without an NVIDIA GPU nothing happens.
Wants=network-online.target modprobe@nvidia_uvm.service
After=network-online.target modprobe@nvidia_uvm.service
"""
_SYSTEM_RIGHTS = """\
# For --mlock.
LimitMEMLOCK=infinity
DynamicUser=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
# Not ProcSubset=pid: llama.cpp and CUDA read /proc/cpuinfo, /proc/meminfo and /proc/driver.
ProtectProc=invisible
PrivateTmp=yes
PrivateMounts=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
# GPUs: NVIDIA, then AMD and Intel. Not PrivateDevices, which hides them, nor PrivateUsers, which removes the
# groups. Devices are looked up when the service starts: the driver must be loaded by then (modprobe@ above).
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
DeviceAllow=char-drm rw
DeviceAllow=char-kfd rw
"""
GPU_GROUPS = ("video", "render")
"""Some GPUs are open to these groups only."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Requirements of a program as a service. listen: (host, port) of a socket that systemd opens for it."""

    program: str
    stop_seconds: float
    max_files: int
    has_engine: bool = False
    listen: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class SystemdService:
    """The content of a service's units. name: the name of the units.

    command: the program, followed by the settings file. credentials: by name, files that only root may read;
    the service gets copies of them. environment: variables, in which %d is the folder of these copies.
    """

    name: str
    facts: ServiceFacts
    command: tuple[str, ...]
    is_system: bool
    credentials: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = GPU_GROUPS

    def units(self) -> dict[str, str]:
        """Return the texts of the units, by file name; raises ConfigError."""
        units = {f"{self.name}.service": "".join(f"{part}\n" for part in self._service())}
        if self.facts.listen:
            units[f"{self.name}.socket"] = self._socket(*self.facts.listen)
        return units

    def _service(self) -> Iterator[str]:
        """Yield lines, and blocks of lines, of the service unit."""
        facts = self.facts
        yield f"# Written by `{facts.program} service install`, which writes it anew.\n\n[Unit]"
        yield f"Description=llama-duo {facts.program}"
        yield f"{_SYSTEM_START if self.is_system else ''}\n[Service]"
        yield f"ExecStart={' '.join(map(_quoted, self.command))}"
        yield from (f"LoadCredential={name}:{_literal(path)}" for name, path in self.credentials.items())
        yield from (f"Environment={name}={value}" for name, value in self.environment.items())
        if self.is_system:
            yield f"CacheDirectory={self.name}\nEnvironment=XDG_CACHE_HOME=%C/{self.name}"
            yield f"StateDirectory={self.name}\nEnvironment=XDG_DATA_HOME=%S/{self.name}"
        yield f"TimeoutStopSec={facts.stop_seconds:.0f}\nLimitNOFILE={facts.max_files}"
        yield _RUNNING + _ENGINE * facts.has_engine + _SYSTEM_RIGHTS * self.is_system
        if self.is_system and self.groups:
            yield f"SupplementaryGroups={' '.join(self.groups)}\n"
        yield f"[Install]\nWantedBy={'multi-user' if self.is_system else 'default'}.target"

    def _socket(self, host: str, port: int) -> str:
        try:
            is_long = ipaddress.ip_address(host).version == 6  # noqa: PLR2004 - IPv6
        except ValueError:
            raise ConfigError(f"--socket needs an IP address as --host, not {host!r}") from None
        address = f"[{host}]:{port}" if is_long else f"{host}:{port}"
        return (
            f"# The lead's port, which stays open while {self.name}.service is replaced.\n\n"
            f"[Socket]\nListenStream={address}\n"
            "# As many waiting connections as the lead itself allows.\nBacklog=256\n\n"
            "[Install]\nWantedBy=sockets.target\n"
        )


def _literal(text: object) -> str:
    """Escape %, which begins a specifier."""
    return str(text).replace("%", "%%")


def _quoted(word: str) -> str:
    """Quote a word for systemd.service(5); %d at the beginning of a word or after = is kept."""
    if word.startswith("%d/"):
        return word
    escaped = _literal(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return (
        f'"{escaped}"' if escaped != word or not word or any(map(str.isspace, word)) or "'" in word else word
    )
