"""The `lead-llama-server` program: the lead behind llama-server's command line, for scripts made for that.

`lead` itself understands what both have (`shared.settings.llama_server_options`). llama-server's
defaults apply here where they differ; options for features that the lead lacks are ignored with a warning.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from lead.cli import main as lead_main
from lead.settings.lead_settings import LeadSettings
from shared.settings.llama_server_options import LLAMA_SERVER

PROGRAM = "lead-llama-server"
_SLOTS = ("-np", "--parallel")
_UNIFIED = ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified")


class LlamaServerSettings(LeadSettings):
    """Serve a GGUF model with llama-server's command line.

    Options that make no difference here, or that the lead lacks, are passed over with a warning.
    """

    program = PROGRAM
    defaults: ClassVar = {
        option: spelling.default
        for option, spelling in LLAMA_SERVER.spellings.items()
        if spelling.default is not None
    }

    @classmethod
    def from_command_line(cls, arguments: Sequence[str] | None = None) -> Self:
        """As `LeadSettings`, after what the lead lacks has been taken out of `arguments`."""
        given = [_dashed(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
        kept, passed_over = without_refused(given, cls.dialect.refused)
        for option in passed_over:
            sys.stderr.write(
                f"{PROGRAM}: {option} is passed over: {cls.dialect.refused[option.partition('=')[0]]}\n"
            )
        return super().from_command_line(kept + _context_of_slots(kept))


def without_refused(arguments: Sequence[str], refused: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(what is left of `arguments`, the options of `refused` that stood there).

    What follows such an option and looks like no option is its value.
    """
    kept: list[str] = []
    passed_over: list[str] = []
    skipping = False
    for argument in arguments:
        if argument.partition("=")[0] in refused:
            passed_over.append(argument)
            skipping = "=" not in argument
        elif skipping and not _is_option(argument):
            skipping = False
        else:
            kept.append(argument)
            skipping = False
    return kept, passed_over


def _dashed(argument: str) -> str:
    """llama-server takes --ctx_size for --ctx-size."""
    name, sign, value = argument.partition("=")
    return name.replace("_", "-") + sign + value if name.startswith("--") else argument


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and not argument[1:2].isdecimal()


def _context_of_slots(arguments: Sequence[str]) -> list[str]:
    """llama-server divides the context among slots whose number is given, and else lets them share it."""
    names = [argument.partition("=")[0] for argument in arguments]
    is_given = any(name in names for name in _SLOTS) or "LLAMA_ARG_N_PARALLEL" in os.environ
    is_settled = any(name in names for name in _UNIFIED) or "LLAMA_ARG_KV_UNIFIED" in os.environ
    return ["--no-kv-unified"] if is_given and not is_settled else []


def main() -> None:
    """Serve until a signal; exit status 1 if that cannot be done."""
    lead_main(LlamaServerSettings)
