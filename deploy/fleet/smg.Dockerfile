# SMG with router.py, from this folder:  docker build -f smg.Dockerfile -t llama-duo-smg .
ARG IMAGE=python:3.11-slim-bookworm
FROM ${IMAGE}
COPY requirements.txt /opt/
RUN pip install --no-cache-dir -r /opt/requirements.txt && useradd --uid 10001 duo
COPY router.py /opt/router.py
USER 10001
ENTRYPOINT ["python3", "/opt/router.py"]
