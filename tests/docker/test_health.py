"""The image's health check finds a lead over HTTP and over HTTPS."""

import asyncio
import os
import runpy
import subprocess
import sys

import pytest

from tests.certificates import make_certificate
from tests.docker.compose import ROOT
from tests.lead.fakes import ScriptedLead
from tests.lead.serving import serving

SCRIPT = ROOT / "docker/health.py"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "http://127.0.0.1:5555/health"),
        ({"LEAD_PORT": "", "LEAD_SSL_CERT_FILE": ""}, "http://127.0.0.1:5555/health"),
        ({"LEAD_SSL_CERT_FILE": "c"}, "https://127.0.0.1:5555/health"),
        ({"LLAMA_ARG_SSL_CERT_FILE": "c", "LLAMA_ARG_PORT": "8080"}, "https://127.0.0.1:8080/health"),
    ],
)
def test_the_variables_say_where_the_lead_is(environment, expected):
    assert runpy.run_path(str(SCRIPT))["url"](environment) == expected


async def check(port, **environment):
    """The health check's exit status."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(SCRIPT)),
        env=os.environ | {"LEAD_PORT": str(port)} | environment,
        stderr=subprocess.DEVNULL,
    )
    return await process.wait()


@pytest.mark.parametrize("with_tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("ready", [True, False])
async def test_a_lead_is_healthy_when_its_model_is_loaded(vocabulary, tmp_path, with_tls, ready):
    lead = ScriptedLead(vocabulary)
    if not ready:
        lead.app.state.services = None
    made = make_certificate(tmp_path, "gpu-box")
    async with serving(lead) as start:
        served = start(tls=(made.chain, made.key)) if with_tls else start()
        given = {"LEAD_SSL_CERT_FILE": str(made.chain)} if with_tls else {}
        assert (await check(served.port, **given) == 0) is ready
