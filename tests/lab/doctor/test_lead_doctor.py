"""`lead doctor`: findings about the lead's own settings."""

import asyncio

import pytest

from lab.doctor.lead_doctor import _own_key, check_address, check_threads, diagnose, name_model
from lab.parts.processes import free_port
from lead.settings.lead_settings import LeadSettings
from shared import cpus
from shared.diagnostics.findings import Severity
from shared.errors import ConfigError
from shared.llama import devices, library
from tests.certificates import make_certificate

TWO = frozenset({0, 1})


def severities(findings):
    return [each.severity for each in findings]


def test_a_lead_that_is_not_there_is_a_problem():
    report = diagnose(LeadSettings.from_options(port=free_port()))
    assert report.status == 1
    assert "no program listens on this port" in str(report)
    assert f"CPU kernel: {library.describe_kernel()}" in str(report)


async def test_a_lead_with_tls_is_asked_under_its_own_certificate(serve, tmp_path):
    made = make_certificate(tmp_path, "gpu-box")
    served = serve(tls=(made.chain, made.key))
    report = await asyncio.to_thread(diagnose, LeadSettings.from_options(port=served.port, **made.options))
    assert f"the lead at https://127.0.0.1:{served.port} is ready" in str(report)


async def test_another_server_on_its_port_is_not_trusted(serve, tmp_path):
    for name in ("lead", "stranger"):
        (tmp_path / name).mkdir()
    own, other = (make_certificate(tmp_path / name, "gpu-box") for name in ("lead", "stranger"))
    served = serve(tls=(other.chain, other.key))
    report = await asyncio.to_thread(diagnose, LeadSettings.from_options(port=served.port, **own.options))
    assert "is not trusted" in str(report)


async def test_the_model_that_is_examined_is_named(serve):
    settings = LeadSettings.from_options(port=serve().port)
    assert "model: toy\n" in str(await asyncio.to_thread(diagnose, settings))


def test_with_several_models_it_is_said_which_one_is_examined(tmp_path):
    (found,) = name_model("a", LeadSettings.from_options(models_dir=tmp_path))
    assert found.sentence.startswith("model: a, the loaded model that a back")


def test_a_lead_on_loopback_is_told_how_other_machines_reach_it():
    (found,) = check_address(LeadSettings())
    assert "lead invite --open" in found.sentence


def test_a_lead_with_keys_for_clients_alone_is_told_that_backs_need_one():
    (found,) = check_address(LeadSettings.from_options(api_key="k", host="0.0.0.0"))
    assert "--back-key-file" in found.sentence
    assert (
        severities(check_address(LeadSettings.from_options(api_key="k", back_key="b", host="0.0.0.0"))) == []
    )


@pytest.mark.parametrize(
    ("settings", "load", "expected"),
    [
        ({"threads": 1}, 1.0, []),
        ({"threads": 3}, None, [Severity.PROBLEM]),
        ({"threads": 2, "back": "builtin"}, None, [Severity.PROBLEM]),
        ({"threads": 1, "back": "builtin"}, None, []),
        ({"threads": 1, "cpus": "0", "back": "builtin", "back_cpus": "1"}, None, []),
        ({"threads": 1}, 4.0, [Severity.HINT]),
    ],
)
def test_threads_need_cores(settings, load, expected):
    assert severities(check_threads(LeadSettings.from_options(**settings), TWO, load)) == expected


def test_threads_are_counted_on_the_cores_of_the_lead(monkeypatch):
    monkeypatch.setattr(cpus, "n_physical", lambda: 2)
    monkeypatch.setattr(
        cpus, "pin", lambda chosen: monkeypatch.setattr(cpus, "n_physical", lambda: len(chosen))
    )
    report = diagnose(LeadSettings.from_options(port=free_port(), cpus="0"))
    assert "slow each other down" not in str(report)


def test_the_threads_of_a_lead_on_a_gpu_leave_the_cores_to_its_back(monkeypatch):
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    offloaded = LeadSettings.from_options(threads=2, back="builtin")
    assert severities(check_threads(offloaded, TWO, None)) == []
    on_the_cpu = LeadSettings.from_options(threads=2, back="builtin", n_gpu_layers=0)
    assert severities(check_threads(on_the_cpu, TWO, None)) == [Severity.PROBLEM]


def test_it_asks_with_a_clients_key_rather_than_with_a_backs():
    assert _own_key(LeadSettings.from_options(back_key="b", admin_key="a", api_key="c,d").security) == "c"
    assert _own_key(LeadSettings.from_options(back_key="b").security) == "b"
    assert _own_key(LeadSettings().security) is None


def test_a_key_file_that_is_not_there_is_said(tmp_path):
    settings = LeadSettings.from_options(api_key_file=tmp_path / "nowhere")
    with pytest.raises(ConfigError):
        _own_key(settings.security)
    assert "cannot read the keys" in str(diagnose(settings))
