"""The settings of `lead plan`: those of the lead, and what to assume."""

import dataclasses
import re
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import CliToggleFlag

from lead.settings.lead_settings import LeadSettings
from shared.settings.base import OptionError
from shared.settings.command_line import Spelling
from shared.settings.llama_server_options import LLAMA_SERVER

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s)")
_SECONDS = {"ms": 0.001, "s": 1.0}
_LONGEST = 60.0
_MOST_TRIPS = 8


def _check_durations(text: str) -> str:
    if len(_read_durations(text)) > _MOST_TRIPS:
        raise ValueError(f"more than {_MOST_TRIPS} times")
    return text


def _read_durations(text: str) -> tuple[float, ...]:
    """`5ms,0.1s` → (0.005, 0.1)."""
    return tuple(map(_seconds, text.split(",")))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) * _SECONDS[match[2]] > _LONGEST:
        raise ValueError(f"{text!r} is not a time up to {_LONGEST:g} s: write 5ms or 0.1s")
    return float(match[1]) * _SECONDS[match[2]]


Durations = Annotated[str, AfterValidator(_check_durations)]
"""Times, as in 0.3ms,20ms."""


class PlanSettings(LeadSettings):
    """Measure the model and the draft model on this machine, and say which arrangement will be fastest.

        lead plan --model 70B.gguf --draft-model 1B.gguf
        lead plan --model 70B.gguf --draft-model 1B.gguf --round-trip 0.3ms,20ms
        lead plan --model 8B.gguf --prompt "$(cat typical.txt)" --temp 0 --json
        lead plan                                     the built-in demo models

    It takes some seconds and computes on all cores meanwhile; nothing else should run. It compares: no draft
    model; the draft model inside the engine; a back on other cores of this machine; a back on another
    machine; the model's own heads (MTP). All options of `lead` apply that say how models are loaded and
    tokens sampled.
    """

    program = "lead plan"
    dialect = dataclasses.replace(
        LLAMA_SERVER,
        spellings={**LLAMA_SERVER.spellings, "as_json": Spelling(("--json",)), "prompt": Spelling(("-p",))},
    )
    headings: ClassVar = {"round_trip": "planning", **LeadSettings.headings}
    defaults: ClassVar = {"log_level": "warning"}

    round_trip: Durations = Field(
        "1ms",
        description="round-trip times of backs on other machines, as in 0.3ms,20ms; such a back is assumed "
        "to be as fast as this machine",
    )
    acceptance: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="how often the next token of the draft model is right, instead of measuring that",
    )
    prompt: str | None = Field(
        None,
        description="beginning of the text on which drafts are tried; without it, those of some short texts",
    )
    as_json: CliToggleFlag[bool] = Field(False, description="print one JSON object, with all measurements")

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.workers.rpc:
            raise OptionError(
                "rpc", "layers on other machines cannot be planned: what is measured is this one"
            )
        return self

    @property
    def round_trips(self) -> tuple[float, ...]:
        return _read_durations(self.round_trip)
