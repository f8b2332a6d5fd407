"""A model for embeddings or reranking, seen from the front."""

import asyncio
import contextlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from fastapi import FastAPI

from lead.embeddings.encoder_client import EncoderClient
from lead.embeddings.encoder_messages import L2, EncodedText, EncoderReady, LoadEncoder
from lead.engine_client.engine_state import EngineState
from lead.http.client_gone import cancel
from lead.http.side_models import SideModel, SideWork, show_side_models
from lead.settings.lead_settings import LeadSettings
from lead.tokenizer.fair_queue import Client
from lead.tokenizer.jobs import MadePrompt, ModelDescription, Prompt, TokenizerJobs
from lead.tokenizer.pool import TokenizerPool
from lead.tokenizer.tokenizer_program import TokenizerProgram
from shared import cpus
from shared.errors import ContextExceededError, NotServingError, RequestError
from shared.llama.model_info import ModelInfo
from shared.settings.options import AUTO_LAYERS

_NICE = 19
"""The lowest priority: beside an engine, the encoder gets the time that others leave."""
_MAX_LAYERS = 999


class VectorOptions(NamedTuple):
    """Options of a request. field: the request field that errors name.

    truncates: cut texts that are too long.
    """

    field: str
    n_dimensions: int = 0
    norm: int = L2
    truncates: bool = False


class Found(NamedTuple):
    """The embeddings of the texts, as 32-bit floats. n_tokens: the total number of tokens in the texts."""

    vectors: list[bytes]
    n_tokens: int


class VectorModel:
    def __init__(self, load: LoadEncoder, settings: LeadSettings, name: str | None = None) -> None:
        """name: the model's name; None: the name in its file."""
        self._name, self._is_other = name, not load.continues_texts
        program = TokenizerProgram(
            model=load.model,
            chat_template=None,
            chat=settings.conversation,
            limits=settings.limits,
            log_level=settings.log_level,
            log_json=settings.log_json,
            writes_text=False,
        )
        self._tokenizer = TokenizerPool(program)
        self.encoder = EncoderClient(
            load,
            [settings.log_level, *(["json"] if settings.log_json else [])],
            timeout=settings.engine_timeout,
            sleep_seconds=settings.sleep_idle_seconds,
            on_sleep=self._tokenizer.rest,
        )
        self.path = load.model
        self.n_texts = self.n_tokens = 0
        """The numbers of texts and tokens computed so far."""
        self._description: ModelDescription | None = None
        self._end: array[int] = array("i")

    @property
    def name(self) -> str:
        return self._name or (self._description.info.name if self._description else self.path.stem)

    @property
    def info(self) -> ModelInfo:
        """The information about the model, which must have been ready once."""
        assert self._description
        return self._description.info

    @property
    def ready(self) -> EncoderReady:
        """The encoder's report when it became ready. Raises NotServingError during the first load."""
        if self._description is None:
            raise EngineState.STARTING.refusal()
        if self.encoder.ready is None or not self.encoder.state.takes_requests:
            raise self.encoder.state.refusal()
        return self.encoder.ready

    def describe(self) -> SideModel:
        """Return the description of the model; raises NotServingError during the first load."""
        ready = self.ready
        return SideModel(
            name=self.name,
            task="rerank" if ready.ranks else "embedding",
            info=self.info,
            n_ctx=ready.n_ctx,
            n_out=ready.n_out,
            is_loaded=self.encoder.state is EngineState.READY,
            work=SideWork(self.n_texts, self.n_tokens, self.encoder.seconds, self.encoder.n_waiting),
            is_other=self._is_other,
        )

    async def run(self) -> None:
        """Run until `encoder.stop`; raises ModelLoadError if the model can never be used."""
        processes = asyncio.ensure_future(self._tokenizer.run_processes())
        try:
            await self.encoder.run()
        finally:
            await cancel(processes)

    async def wait_until_ready(self) -> None:
        own = Client("lead")
        description = await self._tokenizer.run(own, TokenizerJobs.describe)
        (around,) = (await self._tokenizer.run(own, TokenizerJobs.prepare_prompts, [""])).prompts
        self._end = around[1:] if description.adds_bos else around
        await self.encoder.has_been_ready.wait()
        self._description = description

    async def compute(
        self, client: Client, prompts: Sequence[Prompt | MadePrompt], asked: VectorOptions
    ) -> Found:
        """Compute the embeddings of prompts. Raises RequestError naming the text at fault,
        UnavailableError.
        """
        ready = self.ready
        if asked.n_dimensions > ready.n_out:
            raise RequestError(f"dimensions: {self.name} has at most {ready.n_out} dimensions", "dimensions")
        try:
            prepared = await self._tokenizer.run(client, TokenizerJobs.prepare_prompts, prompts)
        except RequestError as error:
            raise RequestError(str(error).replace("prompt", asked.field, 1), asked.field) from error
        texts = [self._fitting(number, text, asked, ready) for number, text in enumerate(prepared.prompts)]
        encoded = [EncodedText(text, asked.n_dimensions, asked.norm) for text in texts]
        vectors = await self.encoder.encode(client, encoded)
        n_tokens = sum(map(len, texts))
        self.n_texts += len(texts)
        self.n_tokens += n_tokens
        return Found(vectors, n_tokens)

    def _fitting(
        self, number: int, text: "array[int]", asked: VectorOptions, ready: EncoderReady
    ) -> "array[int]":
        if not text:
            raise RequestError(f"{asked.field}.{number}: this text has no tokens", asked.field)
        if len(text) <= ready.n_ctx:
            return text
        if asked.truncates:
            return text[: ready.n_ctx - len(self._end)] + self._end
        raise RequestError(
            f"{asked.field}.{number}: this text has {len(text)} tokens. {self.name} accepts at "
            f"most {ready.n_ctx}",
            asked.field,
            ContextExceededError.CODE,
        )


@dataclass(slots=True)
class VectorModels:
    """The models for embeddings and reranking of a lead, in `app.state.vector_models`."""

    embedder: VectorModel | None = None
    ranker: VectorModel | None = None
    _running: list[asyncio.Future[None]] = field(default_factory=list)

    @classmethod
    def beside(cls, settings: LeadSettings) -> Self:
        """Return the models that run beside a model that generates text."""
        options = settings.vectors

        own = settings.source.model if options.serve_embeddings else None

        def model(path: Path | None) -> VectorModel | None:
            if path is None:
                return None
            n_threads = options.embedding_threads or max(1, cpus.n_physical() - settings.n_threads)
            load = LoadEncoder(
                path,
                n_threads,
                n_layers(options.embedding_gpu_layers),
                options.embedding_ctx_size,
                nice=_NICE,
                continues_texts=path == own,
            )
            return VectorModel(load, settings, settings.aliases("")[0] if path == own else None)

        return cls(model(options.embedding_model or own), model(options.rerank_model))

    def __iter__(self) -> Iterator[VectorModel]:
        return iter([model for model in (self.embedder, self.ranker) if model])

    def serve_in(self, app: FastAPI) -> None:
        app.state.vector_models = self
        show_side_models(app, self.describe)

    def describe(self) -> list[SideModel]:
        """Return the models that can be asked."""
        found = []
        for model in self:
            with contextlib.suppress(NotServingError):
                found.append(model.describe())
        return found

    def __bool__(self) -> bool:
        return bool(self.embedder or self.ranker)

    async def start(self) -> None:
        """Start all models and wait until they are ready; raises ModelLoadError."""
        self._running = [asyncio.ensure_future(model.run()) for model in self]
        waiting: asyncio.Future[Any] = asyncio.gather(*(model.wait_until_ready() for model in self))
        try:
            await asyncio.wait([waiting, *self._running], return_when=asyncio.FIRST_COMPLETED)
            for each in self._running:
                if each.done():
                    each.result()
            if waiting.done():
                waiting.result()
        finally:
            await cancel(waiting)

    async def end(self) -> None:
        for model in self:
            model.encoder.stop()
        await asyncio.gather(*self._running, return_exceptions=True)


def n_layers(asked: int) -> int:
    return asked if asked > AUTO_LAYERS else _MAX_LAYERS


def models_of(app: FastAPI) -> VectorModels:
    """Return the models of an application; empty if none were set."""
    found: VectorModels | None = getattr(app.state, "vector_models", None)
    return found or VectorModels()
