"""docs/protocol.md names every message and field, with the bounds of the code."""

import re
from pathlib import Path

from lead.backs.draft_limits import ABUSE_FACTOR, MAX_INVALID_DRAFTS, STALE_PART
from lead.backs.join_limits import FIRST_LOCKOUT_SECONDS, MAX_LOCKOUT_SECONDS
from lead.backs.registry import HTTP_SILENCE_SECONDS
from lead.http.routes.speculation import HELLO_SECONDS, MAX_WAIT_SECONDS
from lead.settings.limits import RequestLimits
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    MAX_DRAFT_TOKENS,
    MAX_TOKENS_PER_MESSAGE,
    Close,
    Draft,
    Extend,
    Hello,
    Open,
    Post,
    Refused,
    Reply,
    Tune,
    Welcome,
)

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")


def described():
    """The fields of each message in the page's tables."""
    fields = {}
    message = None
    for name, field in re.findall(r"^\| (?:`(\w+)`)? ?\| (?:`(\w+)`)?", PAGE, re.MULTILINE):
        message = name or message
        if field:
            fields.setdefault(message, set()).add(field)
    return fields


def test_every_field_of_a_message_is_described_and_no_other():
    messages = [Hello, Draft, Welcome, Refused, Open, Extend, Close, Tune]
    left_out = {"type", "source", "received_at"}  # the lead's own
    fields = {each.model_fields["type"].default: each.model_fields.keys() - left_out for each in messages}
    found = described()
    assert {kind: found[kind] for kind in fields} == fields


def test_what_is_posted_and_answered_is_described():
    names = [name for envelope in (Post, Reply) for name in envelope.model_fields]
    assert [name for name in names if f'"{name}"' not in PAGE] == []


def test_the_bounds_are_those_of_the_code():
    bounds = [
        *(f"1 to {MAX_DRAFT_TOKENS} ids", f"0 to {MAX_DRAFT_TOKENS} |"),
        *(f"at most {MAX_TOKENS_PER_MESSAGE:,}", f"at most {MAX_BACK_MESSAGE_BYTES // 1024} KiB"),
        *(f"`hello` must come within {HELLO_SECONDS:.0f} seconds", f"(at most {MAX_WAIT_SECONDS:.0f})"),
        f"has not posted for {HTTP_SILENCE_SECONDS:.0f} seconds",
        f"| more than {MAX_INVALID_DRAFTS} |",
        f"| over {ABUSE_FACTOR} times the limit for some seconds |",
        f"more than 1/{STALE_PART} of `--max-drafts-per-second`",
        f"`--max-draft-bytes-per-second` ({RequestLimits().max_draft_bytes_per_second >> 20} MiB)",
        f"within {FIRST_LOCKOUT_SECONDS:.0f} s (doubled each time, ",
        f"up to {MAX_LOCKOUT_SECONDS / 60:.0f} minutes)",
    ]
    assert [words for words in bounds if words not in PAGE] == []
