"""The command lines that start an arrangement."""

import shlex
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from lead.planning.arrangements import Arrangement
from lead.planning.core_splits import as_ranges
from lead.planning.measurements import SplitTimes
from lead.settings.lead_settings import LeadSettings
from shared import cpus

_CHOSEN_HERE = frozenset({"threads", "hf_token"})
_LEAD_ADDRESS = "http://LEAD:5555"


def commands(arrangement: Arrangement, settings: LeadSettings, cores: Sequence[int]) -> list[str]:
    """In the order in which to run them; `settings` as they were given."""
    lead = ["lead", *_model_words(settings)]
    threads = ["--cpus", settings.cpus] if settings.cpus else []
    if settings.compute.threads or not settings.cpus:
        threads += ["--threads", str(settings.compute.threads or len(cores))]
    model = draft_model_words(settings)
    if arrangement.split:
        back = _renamed(model, "--back", "--back-hf-repo")
        return [shlex.join([*lead, *back, *_core_words(arrangement.split)])]
    if arrangement.kind == "remote":
        address = ["--host", "0.0.0.0", "--keys-file", "keys"]
        there = ["back", "--lead", _LEAD_ADDRESS, *model, "--key-file", "key"]
        return [shlex.join([*lead, *threads, *address]), shlex.join(there)]
    return [shlex.join([*lead, *threads, *_drafting_words(arrangement, model)])]


def draft_model_words(settings: LeadSettings) -> list[str]:
    """The draft model that was named, for `--draft-model` or for `--back`, as options of `back`."""
    drafting, own_back = settings.drafting, settings.own_back
    if repository := drafting.hf_repo_draft or own_back.back_hf_repo:
        return ["--hf-repo", repository]
    path = drafting.draft_model or own_back.back
    return ["--model", str(path)] if path and str(path) != "builtin" else []


def _drafting_words(arrangement: Arrangement, model: Sequence[str]) -> list[str]:
    """Of a lead without a back."""
    if arrangement.kind == "engine":
        return _renamed(model, "--draft-model", "--hf-repo-draft")
    return ["--mtp", "on" if arrangement.kind == "mtp" else "off"]


def _renamed(model: Sequence[str], path_option: str, repository_option: str) -> list[str]:
    if not model:
        return [path_option, "builtin"]
    return [{"--model": path_option, "--hf-repo": repository_option}[model[0]], model[1]]


def _core_words(split: SplitTimes) -> list[str]:
    lead, back = split.lead_cpus, split.back_cpus
    on_cpu = ["--back-gpu-layers", "0"] if split.back_on_cpu else []
    if not cpus.can_pin():
        return ["--threads", str(len(lead)), "--back-threads", str(len(back)), *on_cpu]
    return ["--cpus", as_ranges(lead), "--back-cpus", as_ranges(back), *on_cpu]


def _model_words(settings: LeadSettings) -> list[str]:
    """Which model, and how to load it, as far as that differs from the defaults."""
    return [*_changed(settings.source), *_changed(settings.compute)]


def _changed(group: BaseModel) -> Iterator[str]:
    for name, field in type(group).model_fields.items():
        value = getattr(group, name)
        if name not in _CHOSEN_HERE and value != field.default:
            yield from _words(name, value)


def _words(name: str, value: object) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
