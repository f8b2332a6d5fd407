"""`lead models`: lists, downloads, examines and deletes the models on this machine."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import CliPositionalArg, CliToggleFlag

from lead.router.catalog import FOLDER, HUB, KnownModel, find_models
from lead.router.hub_cache import cached_models, remove_model
from lead.router.models_file import ServedModel, served_models
from lead.settings.lead_settings import LeadSettings
from lead.text_table import listing
from shared.errors import ConfigError
from shared.exits import exiting_in_words, print_text
from shared.model_files.file_kind import parts_of, read_beginning, size_of
from shared.model_files.hub import Hub, HubModel
from shared.model_files.near_models import on_hub
from shared.model_files.projector_file import projector_beside
from shared.settings.base import ProgramSettings
from shared.terminal import one_line, size_text

_READ_ACTION = BeforeValidator(
    lambda value: {"ls": "list", "rm": "remove", "delete": "remove", "download": "pull"}.get(value, value)
)
"""Reads an action, for which words of other programs are accepted, too."""


class ModelsSettings(ProgramSettings):
    """List, download, examine or delete models on this machine.

        lead models                       models of packages and of the Hugging Face cache
        lead models --models-dir FOLDER   and models of a folder, as in `lead --models-dir`
        lead models pull USER/REPO:Q4_K_M download a model, or resume a download
        lead models show NAME             show size and context, whether it fits here, and draft models
        lead models remove NAME           delete its files

    NAME is a name from the list, or a path.
    """

    program = "lead models"
    prefix = "LEAD_MODELS_"

    action: CliPositionalArg[Annotated[Literal["list", "show", "pull", "remove"], _READ_ACTION]] = Field(
        "list", description="action: list, show, pull or remove"
    )
    name: CliPositionalArg[str | None] = Field(None, description="name of the model, except for list")
    models_dir: Path | None = Field(None, description="folder with GGUF files")
    models_file: Path | None = Field(None, description="TOML file with options, as with `lead --models-dir`")
    hf_file: str | None = Field(None, description="file of the repository to download, instead of QUANT")
    hf_token: SecretStr | None = Field(
        None, description="Hugging Face access token; the variable HF_TOKEN hides it from process listings"
    )
    mmproj: bool = Field(True, description="also download the projector, which the model needs for images")
    yes: CliToggleFlag[bool] = Field(False, description="delete without asking for confirmation")

    @property
    def hub(self) -> Hub:
        return Hub(self.hf_token.get_secret_value() if self.hf_token else None)


def main(arguments: Sequence[str]) -> None:
    """Run `lead models`. Exits with status 1 and a message after a failure."""
    settings = ModelsSettings.from_command_line(arguments)
    with exiting_in_words(settings.program):
        print_text(run(settings))


def run(settings: ModelsSettings) -> str:
    """Return the output of a command; raises ConfigError."""
    if settings.action == "list":
        return _table(find_models(settings.models_dir, settings.hub).values())
    if settings.name is None:
        raise ConfigError(
            f"lead models {settings.action} needs the NAME of a model. `lead models` lists the names"
        )
    if settings.action == "pull":
        return _pull(settings, settings.name)
    known = find_models(settings.models_dir, settings.hub)
    if settings.action == "remove":
        return _remove(_known(settings.name, known), settings)
    return _show(settings, settings.name, known)


def _table(models: Iterable[KnownModel]) -> str:
    rows = []
    for model in models:
        beginning = read_beginning(model.path)
        kind = " ".join(
            filter(None, (beginning.get("general.architecture"), beginning.get("general.size_label")))
        )
        rows.append((model.name, size_text(model.n_bytes), kind, model.origin))
    if not rows:
        return (
            "no models found, except the small models that lead and back use without --model. Download a "
            "model with `lead models pull USER/REPO:QUANT`, or set --models-dir FOLDER"
        )
    return listing(("name", "size", "architecture", "from"), rows)


def _pull(settings: ModelsSettings, name: str) -> str:
    try:
        wanted = HubModel.parse(name, settings.hf_file)
    except ValueError as error:
        near = " or ".join(on_hub(name, settings.hub))
        raise ConfigError(f"{name}: {f'did you mean {near}?' if near else error}") from error
    path = settings.hub.fetch(wanted, with_projector=settings.mmproj)
    names = [model.name for model in cached_models(settings.hub) if model.path.resolve() == path.resolve()]
    projector = projector_beside(path) if settings.mmproj else None
    sees = f", with {projector.name} for images" if projector else ""
    return f"{next(iter(names), name)}: {size_text(size_of(path))}, {path}{sees}"


def _show(settings: ModelsSettings, name: str, known: dict[str, KnownModel]) -> str:
    from lead.router.model_report import model_report  # noqa: PLC0415 - loads llama.cpp

    path = Path(name)
    if name not in known and path.is_file():
        known = known | {name: KnownModel(name, path.absolute(), FOLDER, size_of(path))}
    lead = LeadSettings.from_options(
        models_dir=settings.models_dir or Path(), models_file=settings.models_file
    )
    served = served_models(lead, known, cache_ram=0)
    if name not in served:
        _known(name, known)
    model: ServedModel = served[name]
    return model_report(model, [other for other in known.values() if other.name != name])


def _remove(model: KnownModel, settings: ModelsSettings) -> str:
    if model.origin not in {FOLDER, HUB}:
        raise ConfigError(f"{model.name} belongs to a package. Uninstall the package with pip")
    if not settings.yes:
        _confirm(model)
    try:
        if model.origin == HUB:
            remove_model(model.path)
        else:
            for part in parts_of(model.path):
                part.unlink()
    except OSError as error:
        raise ConfigError(f"cannot delete {error.filename}: {error.strerror}") from error
    return f"{model.name} was deleted, {size_text(model.n_bytes)}"


def _confirm(model: KnownModel) -> None:
    """Raise ConfigError unless a person agrees."""
    if not sys.stdin.isatty():
        raise ConfigError(f"nothing was deleted. Add --yes to delete {model.path}")
    sys.stderr.write(f"delete {one_line(str(model.path))}, {size_text(model.n_bytes)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise ConfigError("nothing was deleted")


def _known(name: str, known: dict[str, KnownModel]) -> KnownModel:
    if name not in known:
        raise ConfigError(
            f"the model {name!r} does not exist. Available models: {', '.join(known) or 'none'}"
        )
    return known[name]
