"""The `lead-llama-server` program: the lead with llama-server's command line, for existing scripts.

`lead` itself understands the options that both have (`shared.settings.llama_server_options`). Here
llama-server's defaults apply if the defaults of both differ. Options and variables for features that the lead
lacks are ignored with a warning.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

from lead.cli import main as lead_main
from lead.settings.lead_settings import LeadSettings
from shared.exits import say
from shared.settings.command_line import Dialect
from shared.settings.llama_server_options import LLAMA_SERVER

PROGRAM = "lead-llama-server"
_SLOTS = ("-np", "--parallel")
_UNIFIED = ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified")
_BUDGET = "--reasoning-budget"
_BUDGETS = {"0": ["--reasoning", "off"], "-1": []}
"""Our options for the values of llama-server's --reasoning-budget; other values are not supported."""


class LlamaServerSettings(LeadSettings):
    """Serve a GGUF model with llama-server's command line.

    Options of llama-server that the lead does not have are ignored with a warning. Such an option is an error
    if it names a model or asks for an action other than serving.
    """

    program = PROGRAM
    defaults: ClassVar = {
        option: spelling.default
        for option, spelling in LLAMA_SERVER.spellings.items()
        if spelling.default is not None
    }

    @classmethod
    def from_command_line(cls, arguments: Sequence[str] | None = None) -> Self:
        """Return the settings of a command line (`LeadSettings`), without the options that the lead lacks."""
        given = _with_our_budgets(map(_dashed, sys.argv[1:] if arguments is None else arguments))
        refused = {
            option: reason
            for option, reason in cls.dialect.refused.items()
            if option not in cls.dialect.essential
        }
        kept, ignored = without_refused(given, refused)
        for option in ignored:
            say(f"{PROGRAM}: {option} is ignored: {refused[option.partition('=')[0]]}")
        for variable in _unread_variables(cls.dialect):
            say(f"{PROGRAM}: {variable} is ignored: unknown option")
        return super().from_command_line(kept + _context_of_slots(kept))


def without_refused(arguments: Sequence[str], refused: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return `arguments` without the options in `refused`, and the options that were left out.

    Arguments that follow a refused option and do not look like an option are its values.
    """
    kept: list[str] = []
    ignored: list[str] = []
    skipping = False
    for argument in arguments:
        if argument.partition("=")[0] in refused:
            ignored.append(argument)
            skipping = "=" not in argument
        elif not skipping or _is_option(argument):
            kept.append(argument)
            skipping = False
    return kept, ignored


def _unread_variables(dialect: Dialect) -> list[str]:
    """Return llama-server's variables in the environment that set no option."""
    read = {variable for each in dialect.spellings.values() for variable in each.variables}
    of_options = (name for name in sorted(os.environ) if name.startswith("LLAMA_ARG_"))
    return [name for name in of_options if name.replace("_ARG_NO_", "_ARG_") not in read]


def _dashed(argument: str) -> str:
    """Return the argument with dashes in the option's name, as llama-server also accepts --ctx_size."""
    name, sign, value = argument.partition("=")
    return name.replace("_", "-") + sign + value if name.startswith("--") else argument


def _with_our_budgets(arguments: Iterable[str]) -> list[str]:
    found: list[str] = []
    following = iter(arguments)
    for argument in following:
        name, sign, value = argument.partition("=")
        if name == _BUDGET:
            value = value if sign else next(following, "")
            found += _BUDGETS.get(value, [f"{name}={value}"])
        else:
            found.append(argument)
    return found


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and not argument[1:2].isdecimal()


def _context_of_slots(arguments: Sequence[str]) -> list[str]:
    """Return the option that divides the context among the slots. llama-server divides it if the number of
    slots is set.
    """
    names = [argument.partition("=")[0] for argument in arguments]
    is_given = any(name in names for name in _SLOTS) or "LLAMA_ARG_N_PARALLEL" in os.environ
    is_settled = any(name in names for name in _UNIFIED) or "LLAMA_ARG_KV_UNIFIED" in os.environ
    return ["--no-kv-unified"] if is_given and not is_settled else []


def main() -> None:
    lead_main(LlamaServerSettings)
