"""The options of each model that a lead serves: from the models file, and from the lead's command line.

The file is TOML. It has a table [defaults] for all models, and a table for each model with options of its
own. Options are named as on the command line, and validated when the file is read.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from lead.router.catalog import KnownModel
from lead.settings.lead_settings import LeadSettings
from lead.settings.security import SecurityOptions
from lead.settings.served_models import MODELS_FILE, ServedModels
from shared.errors import ConfigError
from shared.settings.base import explain_invalid
from shared.settings.sources import explain_unknown

DEFAULTS: Final = "defaults"
_PIN, _ON_STARTUP = "pin", "load_on_startup"
_OF_THE_LEAD: Final = frozenset(
    {
        *(SecurityOptions.model_fields.keys() - {"private_by_default"}),
        *ServedModels.model_fields,
        *("embedding_model", "rerank_model", "serve_embeddings"),
        *("host", "port", "announce", "ui", "takeover", "drain_notice_seconds", "print"),
        *("check", "list_devices", "config", "log_level", "log_json"),
    }
)
"""Options that only the lead itself has, not each of its models."""
_OF_ONE_MODEL: Final = frozenset({"model", "hf_repo", "hf_file", "mmproj", "alias", "tags", "tokenizer"})
_NAMES_A_MODEL: Final = ("draft_model", "back")
_FIXED: Final = {"host": "127.0.0.1", "port": 0, "ui": False, "print": "none", "sleep_idle_seconds": -1.0}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with its options.

    options: the options of the model's process, JSON-compatible. settings: these options, validated. pinned:
    never unload it for another model. on_startup: load it at the start. aliases: other names that requests
    may use.
    """

    name: str
    options: Mapping[str, Any]
    settings: LeadSettings = field(compare=False)
    pinned: bool = False
    on_startup: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The model's file; None: it is on the hub, and was not located yet."""
        return self.settings.source.model


def served_models(
    lead: LeadSettings, known: Mapping[str, KnownModel], cache_ram: int
) -> dict[str, ServedModel]:
    """Return all models with their options, by name; raises ConfigError. cache_ram: the default --cache-ram.

    Options of `lead` itself (command line, variables, --config) override the options in a model's table,
    which override [defaults], as in llama-server.
    """
    path = _file(lead)
    tables = _read(path) if path else {}
    given = {name: value for name, value in lead.given().items() if name not in _OF_THE_LEAD}
    if name := next(iter(given.keys() & _OF_ONE_MODEL), None):
        raise ConfigError(
            f"--{_dashed(name)} belongs to one model, but --models-dir serves many: {_where(path)}"
        )
    of_lead = given | {"log_level": lead.log_level, "log_json": lead.log_json}
    defaults = tables.pop(DEFAULTS, {})
    found = {}
    for name in sorted(known.keys() | tables.keys()):
        table = {"cache_ram": cache_ram} | defaults | tables.get(name, {})
        if name not in known and not table.keys() & {"model", "hf_repo"}:
            raise ConfigError(
                f"{path}: [{name}] is not a model of this lead ({', '.join(known) or 'none'}). Set "
                "model or hf-repo in this table"
            )
        found[name] = _served(name, table, of_lead, known, f"{path}: [{name}]")
    _check_names(found, path)
    return found


def _served(
    name: str,
    table: Mapping[str, Any],
    of_lead: Mapping[str, Any],
    known: Mapping[str, KnownModel],
    where: str,
) -> ServedModel:
    """Return the model for a table. of_lead: options that no table can change."""
    options = dict(table)
    flags = {key: options.pop(key, False) for key in (_PIN, _ON_STARTUP)}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{where} {_dashed(key)} must be true or false, not {value!r}")
    options |= of_lead
    for key in _NAMES_A_MODEL:  # these options may name a model as clients do
        if isinstance(value := options.get(key), str) and value in known:
            options[key] = str(known[value].path)
    listed = None if options.keys() & {"model", "hf_repo"} else known[name].path
    if listed:
        options["model"] = str(listed)
    try:
        settings = LeadSettings.from_options(**options)
        if listed and (projector := settings.projector_of(listed)):
            options["mmproj"] = str(projector)
            settings = LeadSettings.from_options(**options)
    except ValidationError as error:
        first = next(explain_invalid(error, LeadSettings.options(), lambda key: f"{where} {_dashed(key)}"))
        raise ConfigError(first) from None
    aliases = settings.aliases(name) if settings.alias else ()
    return ServedModel(
        name, options | _FIXED | {"alias": name}, settings, flags[_PIN], flags[_ON_STARTUP], aliases
    )


def _file(lead: LeadSettings) -> Path | None:
    """Return the models file; None if there is none and none was requested."""
    if lead.served.models_file is not None:
        return lead.served.models_file
    assert lead.served.models_dir
    path = lead.served.models_dir / MODELS_FILE
    return path if path.is_file() else None


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the options of each table, by their names as fields."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--models-file: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--models-file: {path} is not valid TOML: {error}") from error
    known = (LeadSettings.options().keys() - _OF_THE_LEAD) | {_PIN, _ON_STARTUP}
    tables = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise ConfigError(
                f"{path}: {name} is outside of a table. Put it below [{DEFAULTS}] or the name of a model"
            )
        values = {key.replace("-", "_"): value for key, value in table.items()}
        allowed = known - _OF_ONE_MODEL if name == DEFAULTS else known
        for key in values:
            if key in _OF_THE_LEAD:
                raise ConfigError(f"{path}: [{name}] {_dashed(key)} is an option of the lead, not of a model")
            if key not in allowed:
                raise ConfigError(f"{path}: [{name}] {explain_unknown(key, set(allowed))}")
        tables[name] = values
    return tables


def _check_names(models: Mapping[str, ServedModel], path: Path | None) -> None:
    owners: dict[str, str] = {name: name for name in models}
    for model in models.values():
        for alias in model.aliases:
            if (other := owners.setdefault(alias, model.name)) != model.name:
                raise ConfigError(
                    f"{path}: {alias!r} is a name of both {other} and {model.name}. Choose another alias"
                )


def _where(path: Path | None) -> str:
    return f"set it in {path or MODELS_FILE}, in the table of the model"


def _dashed(name: str) -> str:
    return name.replace("_", "-")
