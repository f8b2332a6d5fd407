"""The route `POST /infill`, in llama-server's format."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from lead.chat_format.fields import AtMost, NullIsDefault
from lead.http.generation_request import read_text_request
from lead.http.json_route import JsonRoute
from lead.http.routes.completions import NativeFields, respond_as_llama_server
from lead.http.services import Services, get_ready_services
from lead.infill.gap import Gap

router = APIRouter(route_class=JsonRoute)

_MAX_FILES = 1024
"""The maximum number of entries of `input_extra`; editors send dozens."""


class ExtraFile(NullIsDefault, strict=True):
    """Another file of a project, or a part of one."""

    text: str
    filename: str = "tmp"


class InfillRequest(NativeFields):
    """The body of `/infill`: the texts around a gap; `prompt` is the beginning of the text to fill in."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[ExtraFile], AtMost(_MAX_FILES)] | None = None
    prompt: str | None = None

    def gap(self, services: Services) -> Gap:
        return Gap(
            prefix=self.input_prefix,
            suffix=self.input_suffix,
            prompt=self.prompt or "",
            extra=[(each.filename, each.text) for each in self.input_extra or ()],
            n_ctx=services.n_ctx,
            n_predict=services.settings.sampling.n_predict,
            spm=services.settings.spm_infill,
        )


@router.post("/infill")
async def create_infill(
    body: InfillRequest, http_request: Request, services: Annotated[Services, Depends(get_ready_services)]
) -> Response:
    """Fill a gap in a text, for editors; the answer has the form of `/completion`."""
    request = await read_text_request(body, [body.gap(services)], http_request, services)
    return await respond_as_llama_server(body, request, http_request, services)
