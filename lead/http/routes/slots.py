"""`GET /slots`: the state of each slot, without any text."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from lead.engine.events import Ready
from lead.generation.sequences import LiveSequence, Sequences, Status
from lead.http.middleware.keys import Role
from lead.http.render.generation_settings import public_settings
from lead.server.services import Services, get_ready_services, get_services
from shared.errors import UnavailableError, UnsupportedError

router = APIRouter()


@router.get("/slots")
async def slots(
    request: Request, services: Annotated[Services, Depends(get_ready_services)], fail_on_no_slot: str = ""
) -> list[dict[str, Any]]:
    """One record per slot; with `fail_on_no_slot` an error (503) when none is free.

    How others' tokens are chosen is for admins only: with the seed, a client could choose the same ones.
    """
    if not services.shows_slots:
        raise UnsupportedError("This server does not support slots endpoint. Start it with `--slots`")
    ready = services.engine.ready
    assert ready
    running = _by_slot(services.sequences)
    if fail_on_no_slot and len(running) >= ready.n_slots:
        raise UnavailableError("no slot available")
    is_admin = request.state.principal.role is Role.ADMIN
    return [_describe(index, running.get(index), ready, is_admin=is_admin) for index in range(ready.n_slots)]


@router.post("/slots/{id_slot}", include_in_schema=False)
async def act_on_slot(id_slot: str, services: Annotated[Services, Depends(get_services)]) -> None:
    """Saving and restoring caches; always raises UnsupportedError."""
    del id_slot, services
    raise UnsupportedError("This server does not support slots action: caches are not written to files")


def _by_slot(sequences: Sequences) -> dict[int, LiveSequence]:
    """If two sequences claim a slot, the one that got it first has given way and waits."""
    return {
        sequence.slot: sequence
        for sequence in sorted(sequences, key=lambda each: each.in_slot_since)
        if sequence.status is Status.RUNNING and sequence.slot is not None
    }


def _describe(index: int, sequence: LiveSequence | None, ready: Ready, *, is_admin: bool) -> dict[str, Any]:
    record = {
        "id": index,
        "n_ctx": ready.n_ctx_sequence,
        "speculative": ready.speculates,
        "is_processing": sequence is not None,
    }
    if sequence is None:
        return record
    n_generated = len(sequence.tokens) - sequence.n_prompt
    limit = sequence.max_tokens
    return record | {
        "n_prompt_tokens": sequence.n_prompt,
        "n_prompt_tokens_processed": sequence.n_prompt - sequence.n_cached if n_generated else 0,
        "n_prompt_tokens_cache": sequence.n_cached,
        "params": public_settings(sequence.sampling if is_admin else None, limit),
        "next_token": [
            {
                "has_next_token": True,
                "n_remain": -1 if limit is None else limit - n_generated,
                "n_decoded": n_generated,
            }
        ],
    }
