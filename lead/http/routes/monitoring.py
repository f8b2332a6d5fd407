"""The lead's load: `GET /slots`, and `/loads` for routers. Neither shows texts of requests."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from lead.engine.events import Ready
from lead.engine_client.occupancy import Occupancy
from lead.engine_client.sequences import LiveSequence, Sequences
from lead.http.render.answer_parts import public_settings
from lead.http.services import Services, get_ready_services
from lead.settings.keys import Role
from shared.errors import UnavailableError, UnsupportedError
from shared.version import VERSION

router = APIRouter()


@router.get("/slots")
async def slots(
    request: Request, services: Annotated[Services, Depends(get_ready_services)], fail_on_no_slot: str = ""
) -> list[dict[str, Any]]:
    """Return a record of each slot. fail_on_no_slot: if not empty, fail with 503 if no slot is free.

    Only admins see sampling settings, because another client could reproduce tokens with the seed.
    """
    if not services.settings.slots:
        raise UnsupportedError("This server does not support slots endpoint. Start it with `--slots`")
    ready = services.engine.ready
    assert ready
    running = _by_slot(services.sequences)
    if fail_on_no_slot and len(running) >= ready.n_slots:
        raise UnavailableError("no slot available")
    is_admin = request.state.principal.role is Role.ADMIN
    return [_describe(index, running.get(index), ready, is_admin=is_admin) for index in range(ready.n_slots)]


def _by_slot(sequences: Sequences) -> dict[int, LiveSequence]:
    """Return the sequence in each slot. If two have the same slot, the earlier waits, preempted."""
    return {
        sequence.slot: sequence
        for sequence in sorted(sequences, key=lambda each: each.in_slot_since)
        if sequence.slot is not None
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
    n_generated = sequence.n_generated
    limit = sequence.request.max_tokens
    return record | {
        "n_prompt_tokens": sequence.n_prompt,
        "n_prompt_tokens_processed": sequence.n_prompt - sequence.n_cached if n_generated else 0,
        "n_prompt_tokens_cache": sequence.n_cached,
        "params": public_settings(sequence.request.sampling if is_admin else None, limit),
        "next_token": [
            {
                "has_next_token": True,
                "n_remain": -1 if limit is None else limit - n_generated,
                "n_decoded": n_generated,
            }
        ],
    }


@router.get("/loads")
@router.get("/v1/loads")
async def loads(
    request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> dict[str, Any]:
    """Return the lead's load as one data-parallel rank, without texts or data about single clients."""
    assert services.engine.ready
    load = Occupancy.of(services.sequences, services.engine.ready)
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "dp_rank_count": 1,
        "draining": request.app.state.is_leaving,
        "loads": [
            {
                "dp_rank": 0,
                "num_running_reqs": load.n_running,
                "num_waiting_reqs": load.n_waiting,
                "num_used_tokens": load.n_used_tokens,
                "num_total_tokens": load.n_used_tokens + load.n_waiting_tokens,
                "max_total_num_tokens": load.n_ctx,
                "token_usage": round(load.kv_usage, 4),
                "max_running_requests": load.n_slots,
            }
        ],
        "aggregate": {
            "total_running_reqs": load.n_running,
            "total_waiting_reqs": load.n_waiting,
            "total_reqs": load.n_running + load.n_waiting,
            "avg_token_usage": round(load.kv_usage, 4),
        },
    }
