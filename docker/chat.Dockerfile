# syntax=docker/dockerfile:1
# The chat client, from the wheel in dist/ (`make wheels`): needs no llama.cpp.  docker build -f docker/chat.Dockerfile -t llama-duo-chat .
#   docker run -it --rm --network host --env CHAT_API_KEY llama-duo-chat

ARG IMAGE=python:3.11-slim-bookworm
FROM ${IMAGE}
COPY constraints.txt dist/llama_duo-*.whl /wheels/
RUN pip install --no-cache-dir -c /wheels/constraints.txt \
        httpx httpx-sse platformdirs prompt_toolkit pydantic pydantic-settings rich \
    && pip install --no-cache-dir --no-deps /wheels/*.whl \
    && rm -r /wheels \
    && useradd --create-home duo
USER duo
ENTRYPOINT ["chat"]
