"""`POST /slots/N?action=save|restore|erase` saves, restores or erases the contents of a slot, as in
llama-server.
"""

import re
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from lead.chat_format.fields import NullIsDefault
from lead.disk_cache.act_on_slot import ActOnSlot
from lead.http.json_route import JsonRoute
from lead.http.services import Services, get_ready_services
from lead.settings.keys import ANYONE, Principal
from shared.errors import RequestError, UnsupportedError

router = APIRouter(route_class=JsonRoute)

_MAX_NAME_BYTES = 255
_WRONG_IN_NAME = re.compile(
    '[\x00-\x1f\x7f-\x9f/\\\\:*?"<>|\uff0e\u2215\u2216\ud800-\udfff\ufffd\ufeff]|^ | $|\\.$|\\.\\.'
)
"""Forbidden in a name, as in llama-server (`fs_validate_filename`): characters that on some system lead out
of the folder.
"""


class SlotFile(NullIsDefault, strict=True):
    """The file of an action. filename: relative to --slot-save-path; not needed to erase."""

    filename: str = ""


@router.post("/slots/{id_slot}")
async def act_on_slot(
    id_slot: str,
    request: Request,
    services: Annotated[Services, Depends(get_ready_services)],
    body: SlotFile = SlotFile(),  # noqa: B008 - no code changes it
    action: str = "",
) -> dict[str, Any]:
    """Save the contents of an idle slot to a file, restore them from there, or erase them."""
    folder = services.settings.slot_save_path
    if folder is None:
        raise UnsupportedError("This server does not support slots action. Start it with `--slot-save-path`")
    slot = _slot(id_slot, services)
    began = time.monotonic()
    match action:
        case "save":
            path = _path(folder, body.filename)
            acted = await services.engine.ask(ActOnSlot(action=action, slot=slot, path=path))
            counts = {"n_saved": acted.n_tokens, "n_written": acted.n_bytes}
        case "restore":
            path = _path(folder, body.filename)
            command = ActOnSlot(action=action, slot=slot, path=path, keep_for=_keep_for(request, services))
            acted = await services.engine.ask(command)
            counts = {"n_restored": acted.n_tokens, "n_read": acted.n_bytes}
        case "erase":
            acted = await services.engine.ask(ActOnSlot(action=action, slot=slot))
            return {"id_slot": slot, "n_erased": acted.n_tokens}
        case _:
            raise RequestError("Invalid action", "action")
    timings = {f"{action}_ms": (time.monotonic() - began) * 1000}
    return {"id_slot": slot, "filename": body.filename} | counts | {"timings": timings}


def _slot(id_slot: str, services: Services) -> int:
    if not (id_slot.isascii() and id_slot.isdecimal() and int(id_slot[:10]) < services.n_slots):
        raise RequestError("Invalid slot ID", "id_slot")
    return int(id_slot)


def _path(folder: Path, name: str) -> Path:
    if not name or _WRONG_IN_NAME.search(name) or len(name.encode()) > _MAX_NAME_BYTES:
        raise RequestError("Invalid filename", "filename")
    return folder / name


def _keep_for(request: Request, services: Services) -> str | None:
    """Return the owner for whom the text may be kept in `--cache-disk`: the sender who restores it."""
    sender: Principal = getattr(request.state, "principal", ANYONE)
    return None if services.settings.security.private_by_default else sender.id
