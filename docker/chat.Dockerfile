# syntax=docker/dockerfile:1
# The chat client: needs no llama.cpp.  docker build -f docker/chat.Dockerfile -t llama-duo-chat .
#   docker run -it --rm --network host --env CHAT_API_KEY llama-duo-chat

ARG IMAGE=python:3.11-slim-bookworm
FROM ${IMAGE}
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY lead lead
COPY back back
COPY chat chat
COPY shared shared
RUN pip install --no-cache-dir -c constraints.txt \
        httpx httpx-sse platformdirs prompt_toolkit pydantic pydantic-settings rich \
    && pip install --no-cache-dir --no-deps . \
    && useradd --create-home duo
USER duo
ENTRYPOINT ["chat"]
