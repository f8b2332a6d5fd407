"""The program `lead generate`: reads the settings, generates, prints, sets the exit status."""

import asyncio
import dataclasses
import sys
from collections.abc import Sequence

import uvloop

from lead.diagnostics.check import exit_with_report
from lead.engine_client.assembler import TextToken
from lead.generate.generate_settings import GenerateSettings
from lead.generate.generated_text import GeneratedText, TextOutput, compare, report
from lead.http.answers import AnswerEnd, answer_updates
from lead.http.generation_request import GenerationRequest, generation_request
from lead.http.schema import GenerationFields
from lead.http.services import Services
from lead.server.server import Lead
from lead.tokenizer.fair_queue import Client
from lead.tokenizer.jobs import Prompt, TokenizerJobs
from shared import cpus
from shared.errors import UnavailableError
from shared.exits import INTERRUPTED, discard_stdout, end_unwritten, exiting_in_words, say
from shared.logs import configure_logging
from shared.terminal import sanitize

_N_WARM_UP = 8
_LOOK_SECONDS = 0.02


class StoppedError(Exception):
    """A signal ended the lead before the text was complete."""


def main(arguments: Sequence[str]) -> None:
    """Run `lead generate`.

    Exits with status 1 and a message on failure, 130 after Ctrl-C, 141 at a closed pipe.
    """
    settings = GenerateSettings.from_command_line(arguments)
    configure_logging(settings.log_level, as_json=settings.log_json)
    exit_with_report(settings)
    try:
        with exiting_in_words(settings.program):
            generate(settings)
    except StoppedError:
        sys.exit(INTERRUPTED)
    except BrokenPipeError as error:
        end_unwritten(error)
    except OSError as error:
        discard_stdout()
        sys.exit(f"{settings.program}: {sanitize(error.strerror or str(error))}")


def generate(settings: GenerateSettings) -> None:
    """Generate a text according to `settings`; raises DuoError, StoppedError, OSError."""
    prompt = settings.read_prompt()
    if settings.cpus:
        cpus.pin(cpus.parse_cpus(settings.cpus))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings.located(), prompt))


async def _run(settings: GenerateSettings, prompt: str) -> None:
    """Start a lead, wait for its back, generate and end the lead.

    The models of `settings` are local files. Raises ConfigError if the lead cannot start, StoppedError after
    a signal.
    """
    lead = Lead(settings.alone())
    serving = asyncio.ensure_future(lead.serve())
    working = asyncio.ensure_future(_work(lead, settings, prompt))
    try:
        await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
        was_stopped = lead.is_stopping
    finally:
        lead.stop()
        working.cancel()
        # its end tells why there is no result: the model cannot be loaded, say
        await serving
    try:
        await working
    except (asyncio.CancelledError, UnavailableError) as error:
        if was_stopped:
            raise StoppedError from error
        raise


async def _work(lead: Lead, settings: GenerateSettings, prompt: str) -> None:
    services = await lead.ready()
    if settings.own_back.source(settings.source).model is not None:
        while not any(services.backs) and not lead.has_given_up_back:  # noqa: ASYNC110 - no other task waits
            await asyncio.sleep(_LOOK_SECONDS)
    await _generate(settings, prompt, services)


async def _generate(settings: GenerateSettings, prompt: str, services: Services) -> None:
    output = TextOutput(sys.stdout)
    request = await _request(settings, prompt, services)
    plain = None
    if settings.compare:
        say("generating without drafts …")
        await _continue(services, _warm_up(request), None)
        plain = await _continue(services, _without_drafts(request), None)
        say("and with drafts:")
    if settings.display_prompt:
        await asyncio.to_thread(output.write, prompt)
    drafted = await _continue(services, request, output)
    await asyncio.to_thread(output.write_tokens, [TextToken(-1, "\n", None)])
    if plain is None:
        say(f"\n{report(drafted)}")
        return
    if plain.text != drafted.text:
        say("\nwithout drafts:")
        await asyncio.to_thread(output.write_tokens, [TextToken(-1, f"{plain.text}\n", None)])
    say(f"\n{compare(plain, drafted, _drafter(settings, services))}")


async def _request(settings: GenerateSettings, prompt: str, services: Services) -> GenerationRequest:
    """Return the request, with a seed even if none is set, so that the text can be generated again; raises
    RequestError.
    """
    prompts = [_beginning(services, prompt)]
    prepared = await services.tokenizer.run(Client(settings.program), TokenizerJobs.prepare_prompts, prompts)
    return generation_request(GenerationFields(cache_prompt=False, stream=True), prepared, services)


def _without_drafts(request: GenerationRequest) -> GenerationRequest:
    """Return the request without drafts from backs, which do not see it; its text is not kept."""
    changes = {"n_draft": 0, "owner": None, "keep_for": None}
    submissions = [each.model_copy(update=changes) for each in request.submissions]
    return dataclasses.replace(request, private=True, submissions=submissions)


def _warm_up(request: GenerationRequest) -> GenerationRequest:
    """Return a request for a few tokens, which touches all memory before the first measured text."""
    request = _without_drafts(request)
    submissions = [
        each.model_copy(update={"tokens": each.tokens[:_N_WARM_UP], "max_tokens": _N_WARM_UP})
        for each in request.submissions
    ]
    return dataclasses.replace(request, submissions=submissions)


async def _continue(
    services: Services, request: GenerationRequest, output: TextOutput | None
) -> GeneratedText:
    """Generate once; the text is written to `output`, if there is one, as it is generated."""
    text, end = "", None
    async for update in answer_updates(request, services):
        text += update.text
        end = update.end or end
        if output:
            await asyncio.to_thread(output.write_tokens, update.tokens)
    assert isinstance(end, AnswerEnd)
    return GeneratedText(text, end.stats)


def _beginning(services: Services, prompt: str) -> Prompt:
    """Return the prompt; if it is empty, the token that begins a text, if the model has that token."""
    vocabulary = services.vocabulary
    if not prompt and vocabulary.bos is not None and not vocabulary.adds_bos:
        return [vocabulary.bos]
    return prompt


def _drafter(settings: GenerateSettings, services: Services) -> str:
    back, ready = next(iter(services.backs), None), services.engine.ready
    if back:
        return back.hello.vocabulary.model
    if ready and (ready.draft_model or ready.mtp):
        return ready.draft_model or "the model's own heads"
    return "n-grams" if settings.engine.ngram else "no drafter"
