"""The generated files and blocks: the one list that `make docs` and its test share."""

from functools import partial
from pathlib import Path

from back.settings import BackSettings
from chat.settings import ChatSettings
from docs.generate.blocks import Blocks, fenced, fill
from docs.generate.command_lines import commands_table
from docs.generate.figures import THEMES, figures_table, picture, read_figures
from docs.generate.folders import lead_folders
from docs.generate.protocol import back_messages, lead_messages, message_schema, noise_examples
from docs.generate.request_fields import unused_fields
from docs.generate.rule_of_thumb import prospects, speed_ups, tokens_per_step
from docs.generate.settings_tables import settings_tables
from lead.settings.lead_settings import LeadSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TINY_BACK = DOCS / "examples" / "tiny_back.py"
BY_HAND = DOCS / "examples" / "by_hand.sh"

BLOCKS: Blocks = {
    "commands": commands_table,
    "settings-lead": partial(settings_tables, LeadSettings),
    "settings-back": partial(settings_tables, BackSettings),
    "settings-chat": partial(settings_tables, ChatSettings),
    "lead-folders": lead_folders,
    "unused-fields": unused_fields,
    "tokens-per-step": tokens_per_step,
    "speed-ups": speed_ups,
    "prospects": prospects,
    "simulated-speed-ups": partial(figures_table, "speed-up"),
    "back-messages": back_messages,
    "lead-messages": lead_messages,
    "noise-examples": noise_examples,
    "tiny-back": lambda: fenced("python", TINY_BACK.read_text("utf-8")),
    "by-hand": lambda: fenced("bash", BY_HAND.read_text("utf-8")),
}


def files() -> dict[Path, str]:
    """The text of every file that is generated, or has generated blocks."""
    pages = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
    return {
        **{page: fill(page.read_text("utf-8"), BLOCKS) for page in pages},
        DOCS / "protocol.schema.json": message_schema(),
        **{
            DOCS / "images" / f"{name}{ending}.svg": picture(figures, theme)
            for name, figures in read_figures().items()
            for ending, theme in THEMES.items()
        },
    }
