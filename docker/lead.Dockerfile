# syntax=docker/dockerfile:1
# The lead. Build from the repository's root:  docker build -f docker/lead.Dockerfile -t llama-duo-lead .
#
# Portable by default (AVX2, no AMX: see the Makefile for why). For a GPU, start from a CUDA image with Python
# and build with  --build-arg CMAKE_ARGS=-DGGML_CUDA=on

FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF"
ENV CMAKE_ARGS="-DLLAVA_BUILD=OFF ${CMAKE_ARGS}"
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/llama-duo && /opt/llama-duo/bin/pip install --no-cache-dir -c constraints.txt llama-cpp-python
COPY pyproject.toml README.md LICENSE ./
COPY lead lead
COPY back back
COPY chat chat
COPY shared shared
RUN /opt/llama-duo/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home duo && mkdir -p /home/duo/.cache/llama-duo && chown -R duo /home/duo/.cache
COPY --from=build /opt/llama-duo /opt/llama-duo
ENV PATH=/opt/llama-duo/bin:$PATH
USER duo
# So it needs keys: --env LEAD_API_KEY=… --env LEAD_BACK_KEY=…
ENV LEAD_HOST=0.0.0.0
EXPOSE 5555
HEALTHCHECK --start-period=10m --interval=10s --timeout=3s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5555/health', timeout=2)"]
ENTRYPOINT ["lead"]
