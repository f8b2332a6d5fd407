"""`lead service` and `back service`: installs the program as a service of systemd, or of launchd on a Mac."""

import getpass
import json
import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, get_args

from platformdirs import user_cache_path, user_config_path, user_log_path
from pydantic import Field
from pydantic_settings import CliPositionalArg, CliToggleFlag

from shared.cached_files import written_whole
from shared.errors import ConfigError
from shared.exits import print_text, say
from shared.model_files.builtin import BUILTIN, named_model
from shared.os_service.systemd_unit import GPU_GROUPS, ServiceFacts, SystemdService
from shared.python_child import python_command
from shared.settings.base import ProgramSettings
from shared.settings.options import OptionGroup
from shared.terminal import sanitize

_SYSTEMCTL_SECONDS = 180.0
"""The time limit for systemctl: ending a lead may take its drain time."""
_NO_HOME = (Path("/home"), Path("/root"), Path("/run/user"))
"""The folders that ProtectHome= hides."""
_CREDENTIALS = "%d"
_CREATED = frozenset({"cache_disk"})
"""The options with a folder that the program makes."""
_NO_BUS = "Failed to connect to"
"""The beginning of systemctl's message if it does not reach a systemd. `bus`, `user scope bus via local
transport` or other words follow.
"""


class ServiceOptions(OptionGroup):
    """The options of `service` itself; all other options are the program's."""

    action: CliPositionalArg[Literal["install", "remove", "status"]] = Field(
        "status", description="action: install (or change), remove or status"
    )
    system: CliToggleFlag[bool] = Field(
        False, description="use a system service, which starts at boot. Default: a service of the user"
    )
    dry_run: CliToggleFlag[bool] = Field(
        False, description="with install: print the units without writing them"
    )
    unit: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="name of the service, to have several services. Default: llama-duo-lead or "
        "llama-duo-back",
    )


@dataclass(frozen=True, slots=True)
class ServicePlaces:
    """Folders for units and for the files of settings."""

    units: Path
    settings: Path

    @classmethod
    def of(cls, *, is_system: bool) -> "ServicePlaces":
        if sys.platform == "darwin":
            return cls(Path.home() / "Library" / "LaunchAgents", user_config_path("llama-duo"))
        if is_system:
            return cls(Path("/etc/systemd/system"), Path("/etc/llama-duo"))
        return cls(user_config_path("systemd") / "user", user_config_path("llama-duo"))


def serve_as(
    options: ServiceOptions, settings: type[ProgramSettings], given: Mapping[str, object], facts: ServiceFacts
) -> NoReturn:
    """Perform the action in `options`, with the values `given` for options of a program; exits with
    a status.
    """
    if sys.platform == "win32":
        sys.exit(f"{settings.program}: services on Windows are not supported. Use its Task Scheduler")
    values = {name: value for name, value in given.items() if name not in ServiceOptions.model_fields}
    try:
        service = _Service(options, settings, facts)
        match options.action:
            case "install" if options.dry_run:
                print_text(service.described(values))
            case "install":
                print_text(service.install(values))
            case "remove":
                print_text(service.remove())
            case "status":
                sys.exit(service.status())
    except (ConfigError, PermissionError) as error:
        sys.exit(f"{settings.program}: {sanitize(str(error))}")
    sys.exit(0)


class _Service:
    def __init__(self, options: ServiceOptions, settings: type[ProgramSettings], facts: ServiceFacts) -> None:
        self._name = options.unit or f"llama-duo-{facts.program}"
        self._is_system = options.system
        self._settings = settings
        self._facts = facts
        self._places = ServicePlaces.of(is_system=options.system)
        self._config = self._places.settings / f"{self._name}.toml"
        """The file with all options, including keys: only its owner may read it."""
        self._on_mac = sys.platform == "darwin"
        if self._on_mac and self._is_system:
            raise ConfigError("--system is for systemd")

    def install(self, given: Mapping[str, object]) -> str:
        """Write and start the service, or leave everything unchanged; raises ConfigError, PermissionError."""
        files = self._files(given)
        before = {path: path.read_bytes() if path.exists() else None for path in self._owned()}
        try:
            self._stop()
            for path in before:
                _write(path, files.get(path))
            return self._start()
        except BaseException:
            with suppress(ConfigError):
                self._stop()
            for path, content in before.items():
                _write(path, content)
            with suppress(ConfigError):
                self._start()
            raise

    def described(self, given: Mapping[str, object]) -> str:
        """Return the units that `install` would write, without the settings, which contain keys. Raises
        ConfigError.
        """
        files = self._files(given)
        units = [f"# {path}\n\n{files[path].decode()}" for path in files if path != self._config]
        return "\n".join(
            [*units, f"# Options and keys would be in {self._config}, which only its owner can read."]
        )

    def remove(self) -> str:
        """Stop the service and delete all that `install` has written; raises ConfigError, PermissionError."""
        owned = [path for path in self._owned() if path.exists()]
        if not owned:
            raise ConfigError(f"not installed: the service {self._name}")
        self._stop()
        if self._is_system:
            with suppress(ConfigError):  # it never ran
                self._systemctl("clean", "--what=state", f"{self._name}.service")
        for path in owned:
            path.unlink()
        with suppress(OSError):  # other services have files there
            self._places.settings.rmdir()
        cache = Path("/var/cache") / self._name if self._is_system else user_cache_path("llama-duo")
        kept = f"\nMeasurements and converted models stay in {cache}" if cache.exists() else ""
        if not self._on_mac:
            self._systemctl("daemon-reload")
            with suppress(ConfigError):  # only a service that has failed is remembered
                self._systemctl("reset-failed", f"{self._name}.service")
        return f"{self._name} is removed.{kept}"

    def status(self) -> int:
        """Print systemd's report of the service; return systemctl's status, 3 if the service does not run."""
        if self._on_mac:
            print_text(f"launchctl print gui/{os.getuid()}/{self._name}")
            return 0
        return self._run_systemctl("status", "--no-pager", f"{self._name}.service", quiet=False).returncode

    def _owned(self) -> list[Path]:
        if self._on_mac:
            return [self._config, self._places.units / f"{self._name}.plist"]
        return [
            self._config,
            *(self._places.units / f"{self._name}.{kind}" for kind in ("service", "socket")),
        ]

    def _files(self, given: Mapping[str, object]) -> dict[Path, bytes]:
        """Return the content of the service's files, by path; raises ConfigError."""
        values = {name: value for name, value in given.items() if name != "config"}
        paths = {name: path for name in values if (path := self._path_of(name, values[name]))}
        credentials = {"config": self._config} if self._is_system else {}
        environment = {}
        for name, path in paths.items():
            values[name] = str(path)
            if self._is_system and name.endswith("_file"):
                credentials[name] = path
                environment[f"{self._settings.prefix}{name.upper()}"] = f"{_CREDENTIALS}/{name}"
                del values[name]
            elif self._is_system:
                _check_reachable(path)
        config = "".join(f"{name.replace('_', '-')} = {_toml(value)}\n" for name, value in values.items())
        read = f"{_CREDENTIALS}/config" if self._is_system else str(self._config)
        command = (*_program(self._facts.program), "--config", read)
        if self._on_mac:
            return {self._config: config.encode(), self._owned()[1]: self._launch_agent(command)}
        if self._is_system:
            _check_reachable(Path(sys.prefix))
            _check_reachable(Path(sys.base_prefix))  # of the interpreter that an environment links to
        groups = tuple(filter(_has_group, GPU_GROUPS))
        unit = SystemdService(
            self._name, self._facts, command, self._is_system, credentials, environment, groups
        )
        units = {self._places.units / name: text.encode() for name, text in unit.units().items()}
        return {self._config: config.encode(), **units}

    def _path_of(self, name: str, value: object) -> Path | None:
        """Return the file that an option names; None: it does not name one. Raises ConfigError."""
        if not _is_path(self._settings.options()[name].annotation):
            return None
        given = Path(str(value))
        if given.exists() or name in _CREATED:
            return given.absolute()
        if (given == BUILTIN and name in {"draft_model", "back"}) or named_model(given) != given:
            return None
        raise ConfigError(f"--{name.replace('_', '-')} {value} does not exist. Check the path")

    def _start(self) -> str:
        if self._on_mac:
            return (
                f"The service is written. Start it: launchctl bootstrap gui/{os.getuid()} {self._owned()[1]}"
            )
        self._systemctl("daemon-reload")
        if units := self._units():
            self._systemctl("enable", "--now", *units)
        scope, when = ("", "the machine starts")
        if not self._is_system:
            scope, when = (" --user", "you log in (at boot: loginctl enable-linger)")
        return (
            f"{self._name} starts now and whenever {when}. `{self._settings.program} status` shows "
            f"whether it runs, and `journalctl{scope} -u {self._name}` shows its log."
        )

    def _stop(self) -> None:
        if self._on_mac:
            say(f"If the service runs, end it: launchctl bootout gui/{os.getuid()}/{self._name}")
        elif units := self._units():
            self._systemctl("disable", "--now", *units)

    def _units(self) -> list[str]:
        """Return the names of the units, the socket first: a running service keeps systemd from opening its
        port.
        """
        return [path.name for path in reversed(self._owned()[1:]) if path.exists()]

    def _systemctl(self, *words: str) -> None:
        """Run systemctl; raises ConfigError with its message."""
        done = self._run_systemctl(*words)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
            raise ConfigError(f"systemctl {' '.join(words)}: {said}{self._way_out(said)}")

    def _way_out(self, said: str) -> str:
        """Return a remedy if systemd cannot be reached; empty for other messages."""
        if _NO_BUS not in said:
            return ""
        if self._is_system:
            return ". systemd does not run here, as in most containers; `--dry-run` shows the unit"
        return (
            ". systemd does not run for this user. `sudo loginctl enable-linger "
            f"{getpass.getuser()}` starts it, now and at boot. Then log in again. Or install a "
            f"system service: sudo {sys.prefix}/bin/{self._settings.program} install --system. "
            "`--dry-run` shows the unit"
        )

    def _run_systemctl(self, *words: str, quiet: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *([] if self._is_system else ["--user"]), *words]
        try:
            return subprocess.run(
                command,
                check=False,
                capture_output=quiet,
                text=True,
                errors="replace",
                timeout=_SYSTEMCTL_SECONDS,
            )
        except FileNotFoundError:
            raise ConfigError("systemctl is not installed: this machine has no systemd") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(f"systemctl {words[0]} did not end within {_SYSTEMCTL_SECONDS:.0f} s") from None

    def _launch_agent(self, command: tuple[str, ...]) -> bytes:
        log = str(user_log_path("llama-duo") / f"{self._name}.log")
        return plistlib.dumps(
            {
                "Label": self._name,
                "ProgramArguments": list(command),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": int(self._facts.stop_seconds),
                "SoftResourceLimits": {"NumberOfFiles": self._facts.max_files},
                "StandardErrorPath": log,
                "StandardOutPath": log,
            }
        )


def _write(path: Path, content: bytes | None) -> None:
    """Write the file; None: delete it. Settings, which contain keys, are readable only by their owner."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.touch(0o600 if path.suffix == ".toml" else 0o644)
        part.write_bytes(content)


def _program(name: str) -> list[str]:
    script = Path(sys.executable).with_name(name)
    return [str(script)] if script.exists() else python_command(name)


def _is_path(annotation: object) -> bool:
    return annotation is Path or any(map(_is_path, get_args(annotation)))


def _check_reachable(path: Path) -> None:
    """Raise ConfigError for a path that a service of the system, with its own user, may not read."""
    if any(path.resolve().is_relative_to(home) for home in _NO_HOME):
        raise ConfigError(
            f"{path} is in a home folder, which a system service cannot read. Move it to /opt or "
            "/srv, or install the service without --system"
        )


def _has_group(name: str) -> bool:
    import grp  # noqa: PLC0415 - not on Windows

    with suppress(KeyError):
        return bool(grp.getgrnam(name))
    return False


def _toml(value: object) -> str:
    """Return a value in TOML, which equals JSON for values of command lines, variables and files."""
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def installed_services(*, is_system: bool) -> list[str]:
    """Return the names of the services that `install` has written."""
    places = ServicePlaces.of(is_system=is_system)
    names = sorted(file.stem for file in places.settings.glob("*.toml"))
    kinds = ("service", "plist")
    return [name for name in names if any((places.units / f"{name}.{kind}").exists() for kind in kinds)]


def remove_service(name: str) -> str:
    """Remove one of the user's own services; returns what to print. Raises ConfigError, PermissionError."""
    options = ServiceOptions(action="remove", unit=name)
    return _Service(options, ProgramSettings, ServiceFacts("lead", 0, 0)).remove()
