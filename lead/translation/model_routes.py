"""The route `GET /v1/speculation/vocabulary`, for backs with another vocabulary."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse

from lead.http.services import Services, get_services
from lead.translation.vocabulary_offer import VocabularyOffer

router = APIRouter()


@router.get("/v1/speculation/vocabulary")
async def vocabulary(request: Request, _: Annotated[Services, Depends(get_services)]) -> Response:
    """Return the model's metadata as a GGUF file without weights, which a back with another vocabulary needs.
    The ETag is the file's digest.
    """
    offer: VocabularyOffer = request.app.state.vocabulary_offer
    offered = await offer.files()
    etag = f'"{offered.digest}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    compressed = "gzip" in request.headers.get("accept-encoding", "")
    if compressed:
        headers["Content-Encoding"] = "gzip"
    path = offered.compressed if compressed else offered.plain
    return FileResponse(path, media_type="application/octet-stream", headers=headers)
