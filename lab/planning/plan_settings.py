"""The settings of `lead plan`: the lead's, and assumptions."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from copy import copy
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, TypeAdapter, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import CliToggleFlag

from lab.planning.arrangements import Machines
from lab.simulation.hardware import NAMES, Hardware, hardware_named
from lead.settings.lead_settings import LeadSettings
from shared.settings.command_line import Spelling
from shared.settings.llama_server_options import LLAMA_SERVER
from shared.settings.model_source import find_named
from shared.settings.options import OptionError, PathList

ModelPaths = Annotated[PathList, AfterValidator(lambda paths: tuple(map(find_named, paths)))]
_PATHS: TypeAdapter[tuple[Path, ...]] = TypeAdapter(ModelPaths)
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s)")
_SECONDS = {"ms": 0.001, "s": 1.0}
_LONGEST = 60.0
_MAX_TRIPS = 8
_MAX_BACKS, _MAX_NUMBERS = 16, 4


def _read_durations(text: str) -> tuple[float, ...]:
    """Parse durations to seconds: `5ms,0.1s` gives (0.005, 0.1)."""
    if text.count(",") >= _MAX_TRIPS:
        raise ValueError(f"more than {_MAX_TRIPS} round-trip times")
    return tuple(map(_seconds, text.split(",")))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) * _SECONDS[match[2]] > _LONGEST:
        raise ValueError(f"{text!r} is not a time up to {_LONGEST:g} s. Write 5ms or 0.1s")
    return float(match[1]) * _SECONDS[match[2]]


def _read_numbers(text: str, low: float, high: float) -> list[float]:
    """Parse numbers from `low` to `high`, in ascending order: `1,2` gives [1.0, 2.0]."""
    values = sorted({float(each) for each in text.split(",")})
    if len(values) > _MAX_NUMBERS or not all(low <= each <= high for each in values):
        raise ValueError(f"{text!r} must be up to {_MAX_NUMBERS} numbers from {low:g} to {high:g}")
    return values


def _read_counts(text: str) -> list[int]:
    if not re.fullmatch(r"[\d, ]+", text):
        raise ValueError(f"{text!r} must be whole numbers such as 1,2,4")
    return [int(each) for each in _read_numbers(text, 1, _MAX_BACKS)]


def _read_speeds(text: str) -> list[float]:
    return _read_numbers(text, 0.01, 100)


def _checked(read: Callable[[str], object]) -> AfterValidator:
    """Return a validator for texts that `read` must understand."""

    def check(text: str) -> str:
        read(text)
        return text

    return AfterValidator(check)


class ComparisonSettings(LeadSettings):
    """The settings of a lead with one of several draft models; `drafting` has the first of `draft_models`."""

    defaults: ClassVar = {"log_level": "warning"}

    draft_models: ModelPaths = ()
    as_json: CliToggleFlag[bool] = Field(False, description="print one JSON object, with all measurements")

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the lead's options, but `draft_model` may be given several times."""
        found = super().options()
        several = found.pop("draft_models")
        several.description = (
            f"{found['draft_model'].description}. Repeat the option to compare several draft models"
        )
        return {name: several if name == "draft_model" else field for name, field in found.items()}

    @classmethod
    def from_options(cls, **values: Any) -> Self:
        """Make settings of option values. `draft_model`: paths, separated by commas or in a list."""
        if given := values.get("draft_model"):
            paths = _PATHS.validate_python(given)
            values |= {"draft_model": paths[0], "draft_models": paths}
        return super().from_options(**values)

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.workers.rpc:
            raise OptionError("rpc", "layers on other machines cannot be measured")
        return self

    def with_each_draft(self) -> Sequence[Self]:
        """Return a copy for each draft model, including a draft model for a back; one copy if there is none.

        The demo's target has the demo's draft model.
        """
        drafting, back = self.drafting, self.own_back
        is_demo = self.source.model is None and self.source.hf_repo is None
        if not drafting.is_wanted and (back.is_wanted or is_demo):
            path = back.back if back.is_wanted else Path("builtin")
            drafting = drafting.model_copy(update={"draft_model": path, "hf_repo_draft": back.back_hf_repo})
        drafts = [
            drafting,
            *(drafting.model_copy(update={"draft_model": each}) for each in self.draft_models[1:]),
        ]
        return [self.model_copy(update={"drafting": each}) for each in drafts]


class PlanSettings(ComparisonSettings):
    """Measure the model and the draft model on this machine, and predict the fastest arrangement.

        lead plan --model 70B.gguf --draft-model 1B.gguf
        lead plan --model 70B.gguf --draft-model 1B.gguf --round-trip 0.3ms,20ms
        lead plan --model 70B.gguf --draft-model 1B.gguf --backs 1,2,4 --back-speed 0.5
        lead plan --model 70B.gguf --draft-model 1B.gguf --draft-model 3B.gguf
        lead plan --model 8B.gguf --prompt "$(cat typical.txt)" --temp 0 --json
        lead plan --device rtx4090                    simulated hardware
        lead plan                                     the built-in demo models

    The plan takes a few seconds on all cores. No other program should compute meanwhile. It compares no draft
    model, the draft model inside the engine, a back on other cores, a back on another machine, and the
    model's own heads (MTP). With several draft models, it names the best one for each place. A larger draft
    model can be better on another machine, where drafting takes no time from steps. Options of `lead` for
    loading and sampling apply.

    With --device and a name of hardware, the plan needs no model and measures nothing. It simulates that
    hardware from published figures, which takes up to a few minutes on few cores.
    """

    program = "lead plan"
    dialect = dataclasses.replace(
        LLAMA_SERVER,
        spellings={**LLAMA_SERVER.spellings, "as_json": Spelling(("--json",)), "prompt": Spelling(("-p",))},
    )
    headings: ClassVar = {"round_trip": "planning", **LeadSettings.headings}

    round_trip: Annotated[str, _checked(_read_durations)] = Field(
        "1ms", description="round-trip times of backs on other machines, such as 0.3ms,20ms"
    )
    backs: Annotated[str, _checked(_read_counts)] = Field(
        "1,2", description="numbers of backs on other machines, such as 1,2,4"
    )
    back_speed: Annotated[str, _checked(_read_speeds)] = Field(
        "1",
        description="draft speeds of the other machines, relative to this machine on all its cores, such "
        "as 0.5,4",
    )
    acceptance: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="assumed acceptance of the draft model's tokens. Default: measure it",
    )
    prompt: str | None = Field(
        None,
        description="beginning of the text on which drafts are tried. Default: some short texts",
    )

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the options of a comparison; `device` may also name hardware that is not here."""
        found = super().options()
        found["device"] = device = copy(found["device"])
        device.description = f"{device.description}. Or the name of simulated hardware: {', '.join(NAMES)}"
        return found

    @model_validator(mode="after")
    def _check_hardware(self) -> Self:
        names = self.model_options.device
        if not any(get_close_matches(name, NAMES) for name in names):
            return self
        if unknown := [name for name in names if name not in NAMES]:
            raise OptionError("device", f"{', '.join(unknown)} is not one of {', '.join(NAMES)}")
        if self.source.model or self.source.hf_repo or self.drafting.is_wanted or self.own_back.is_wanted:
            raise OptionError("device", f"{names[0]} is simulated, not measured. Do not set models with it")
        return self

    @property
    def hardware(self) -> list[Hardware]:
        """The hardware to simulate; empty: measure this machine."""
        return [each for name in self.model_options.device for each in hardware_named(name)]

    @property
    def round_trips(self) -> tuple[float, ...]:
        return _read_durations(self.round_trip)

    @property
    def machines(self) -> list[Machines]:
        """All combinations of machines, smallest first; several machines also with different draft models."""
        axes = _read_counts(self.backs), self.round_trips, _read_speeds(self.back_speed), (False, True)
        return [Machines(*each) for each in product(*axes) if each[0] > 1 or not each[-1]]
