"""`lead uninstall`: lists and removes what lead, back and chat keep on this machine."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path, user_log_path, user_state_path
from pydantic import Field
from pydantic_settings import CliToggleFlag

from shared.cached_files import is_held
from shared.errors import ConfigError
from shared.exits import exiting_in_words, print_text, say
from shared.os_service.service_program import installed_services, remove_service
from shared.settings.base import ProgramSettings
from shared.terminal import size_text

_REMAINS = """\
Not removed:
  the programs: pip uninstall llama-duo, or delete the folder of their environment
  downloaded Hugging Face models: `hf cache ls` lists them, `hf cache rm` deletes them
  a lead's CA that you installed on phones and other machines: docs/certificates.md"""


class UninstallSettings(ProgramSettings):
    """List the files of lead, back and chat on this machine, and remove them after confirmation.

        lead uninstall          list the files, then ask
        lead uninstall --yes    remove them without asking

    The services of the user are stopped first. Stop other leads and backs yourself.
    """

    program = "lead uninstall"
    prefix = "LEAD_UNINSTALL_"

    yes: CliToggleFlag[bool] = Field(False, description="remove everything without asking")


@dataclass(frozen=True, slots=True)
class _StoredPath:
    """A file or folder, and its description."""

    path: Path
    what: str


def main(arguments: Sequence[str]) -> None:
    """Run `lead uninstall`. Exits with status 1 and a message if something cannot be removed."""
    settings = UninstallSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        services, kept = installed_services(is_system=False), list(_kept())
        print_text(_report(services, kept))
        if not (services or kept):
            return
        if not settings.yes and not _is_confirmed():
            print_text("Nothing was removed.")
            return
        print_text(_remove(services, kept))


def _kept() -> Iterator[_StoredPath]:
    data = user_data_path("llama-duo")
    for path in sorted(data.iterdir()) if data.is_dir() else ():
        yield _StoredPath(path, _data(path))
    places = {
        user_config_path("llama-duo"): "settings of services, with their keys",
        user_cache_path("llama-duo"): "converted models and measurements (`lead cache`)",
        user_state_path("llama-duo"): "the input history of chat",
        user_log_path("llama-duo"): "logs of services",
    }
    for path, what in places.items():
        if path.exists() and path != data:
            yield _StoredPath(path, what)


def _data(path: Path) -> str:
    match path.name:
        case "joined":
            return "memberships: the leads that this machine has joined, and its keys"
        case "conversations":
            return "saved conversations of chat"
        case name if name.startswith("lead-"):
            return f"CA, keys and members of the lead at port {name.removeprefix('lead-')}"
        case _:
            return "data of llama-duo"


def _report(services: Sequence[str], kept: Sequence[_StoredPath]) -> str:
    lines = [f"  service {name}" for name in services]
    lines += [f"  {each.path}{_link(each.path)}: {each.what}, {size_text(_size(each.path))}" for each in kept]
    of_system = [
        f"  the service {name} of the system: sudo lead service remove --system --unit {name}"
        for name in installed_services(is_system=True)
        if sys.platform != "darwin"
    ]
    head = "Kept on this machine:" if lines else "Nothing is kept on this machine."
    return "\n".join([head, *lines, _REMAINS, *of_system])


def _is_confirmed() -> bool:
    """Return whether the user confirms. Raises ConfigError if there is no terminal to ask at."""
    if not sys.stdin.isatty():
        raise ConfigError("nothing was removed. Add --yes to remove all of it")
    say("Remove all of it? [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _remove(services: Sequence[str], kept: Sequence[_StoredPath]) -> str:
    """Remove services and files; raises ConfigError at the end if some could not be removed."""
    failures = []
    for name in services:
        try:
            remove_service(name)
        except (ConfigError, PermissionError) as error:
            failures.append(f"service {name}: {error}")
    if failures:  # a service is still there, and with it its settings
        kept = [each for each in kept if each.path != user_config_path("llama-duo")]
    for each in kept:
        if is_held(each.path):  # a running lead would write its CA again
            failures.append(
                f"{each.path}: a running lead uses it. Stop this lead, and run this command again"
            )
            continue
        try:
            shutil.rmtree(each.path) if _is_own_folder(each.path) else each.path.unlink()
        except FileNotFoundError:  # a service has taken it along
            continue
        except OSError as error:
            failures.append(f"{error.filename}: {error.strerror}")
    with suppress(OSError):  # there are other files
        user_data_path("llama-duo").rmdir()
    if failures:
        raise ConfigError(f"cannot remove {'; '.join(failures)}")
    return "All of it was removed."


def _link(path: Path) -> str:
    return f" (a link; {path.resolve()} is not removed)" if path.is_symlink() else ""


def _is_own_folder(path: Path) -> bool:
    """Return whether `path` is a folder and not a link: of a link, only the link itself is removed."""
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    files = path.rglob("*") if _is_own_folder(path) else [path]
    return sum(each.lstat().st_size for each in files if each.is_file())
