"""The compose files: their settings exist, and they keep the promises of docker/README.md."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from back.settings import BackSettings
from lead.server.server import _END_SECONDS as END_SECONDS
from lead.settings.lead_settings import LeadSettings
from tests.docker.compose import BACK, FLEET, LEAD, ONE_HOST, ROOT, load, seconds, service
from tests.options import option

SETTINGS = {"lead": LeadSettings, "back": BackSettings}
SERVICES = [(LEAD, "lead"), (BACK, "back"), (ONE_HOST, "lead"), (ONE_HOST, "back")]
TLS = [(ROOT / f"docker/compose.{name}.tls.yml", name) for name in SETTINGS]
CUDA = [(ROOT / f"docker/compose.{name}.cuda.yml", name) for name in SETTINGS]
SINGLE = {"lead": LEAD, "back": BACK}
SET = {
    "LEAD_MODEL": "/models/70B.gguf",
    "LEAD_CTX_SIZE": "8192",
    "LEAD_CPUS": "0-3",
    "LEAD_THREADS": "4",
    "LEAD_N_GPU_LAYERS": "40",
    "BACK_LEAD": "http://192.168.1.10:5555",
    "BACK_NAME": "desk1",
    "BACK_MODEL": "/models/1B.gguf",
    "BACK_CPUS": "4",
    "BACK_THREADS": "1",
    "BACK_N_GPU_LAYERS": "40",
}


def settings_of(path, name, monkeypatch, **variables):
    """The settings with which the container's program starts."""
    for variable, value in service(path, name, **variables)["environment"].items():
        assert isinstance(value, str), f"{variable}: YAML makes {value!r} of it"
        monkeypatch.setenv(variable, value)
    if name == "lead":
        monkeypatch.setenv("LEAD_HOST", "0.0.0.0")  # as the Dockerfile has it
    return SETTINGS[name].from_command_line([])


@pytest.mark.parametrize(("path", "name"), SERVICES + CUDA + TLS)
def test_every_variable_is_a_setting(path, name):
    names = {f"{name}_{field}".upper() for field in SETTINGS[name].options()}
    assert set(service(path, name)["environment"]) <= names


@pytest.mark.parametrize(("path", "name"), SERVICES)
def test_the_programs_start_with_what_the_files_set(path, name, monkeypatch):
    settings_of(path, name, monkeypatch)


@pytest.mark.parametrize(("path", "name"), SERVICES)
def test_what_a_person_sets_reaches_the_program(path, name, monkeypatch):
    settings = settings_of(path, name, monkeypatch, **SET)
    for variable in set(SET) & set(service(path, name)["environment"]):
        value = option(settings, variable.partition("_")[2].lower())
        assert (",".join(value) if isinstance(value, tuple) else str(value)) == SET[variable]


@pytest.mark.parametrize(("path", "name"), SERVICES + TLS)
def test_keys_and_certificates_come_from_secrets(path, name):
    secrets = set(service(path, name)["secrets"])
    files = {v for k, v in service(path, name)["environment"].items() if k.endswith("_FILE")}
    assert files == {f"/run/secrets/{secret}" for secret in secrets}
    assert secrets <= set(load(path)["secrets"])


@pytest.mark.parametrize(("path", "name"), SERVICES)
def test_containers_write_nowhere_but_in_their_cache(path, name):
    writable = [volume for volume in service(path, name)["volumes"] if not volume.endswith(":ro")]
    assert writable == ["cache:/home/duo/.cache"]
    assert "cache" in load(path)["volumes"]


@pytest.mark.parametrize(("path", "name"), [*SERVICES, *((FLEET, name) for name in load(FLEET)["services"])])
def test_containers_have_no_more_rights_than_they_need(path, name):
    container = service(path, name)
    assert container["read_only"]
    assert container["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in container["security_opt"]


@pytest.mark.parametrize(("path", "name"), SERVICES)
def test_containers_have_limits(path, name):
    variable = f"{name}_MEMORY".upper()
    assert service(path, name)["mem_limit"] == "0"
    limited = service(path, name, **{variable: "48g"})
    assert (limited["mem_limit"], limited["pids_limit"]) == ("48g", 1024)
    assert limited["ulimits"]["nofile"] >= 1024


@pytest.mark.parametrize(("path", "name"), [(LEAD, "lead"), (BACK, "back")])
def test_images_can_be_pinned(path, name):
    pinned = "debian@sha256:" + "0" * 64
    arguments = service(path, name, BUILD_IMAGE=pinned, RUN_IMAGE=pinned)["build"]["args"]
    assert arguments == {"BUILD_IMAGE": pinned, "RUN_IMAGE": pinned}
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    assert {f"ARG {key}={value}" for key, value in service(path, name)["build"]["args"].items()} <= set(
        dockerfile.splitlines()
    )


@pytest.mark.parametrize("path", [LEAD, ONE_HOST])
def test_answers_may_finish_before_the_lead_is_killed(path, monkeypatch):
    settings = settings_of(path, "lead", monkeypatch)
    grace = seconds(service(path, "lead")["stop_grace_period"])
    assert grace > settings.drain_seconds + END_SECONDS


@pytest.mark.parametrize("path", [LEAD, ONE_HOST])
def test_a_lead_is_not_published_to_other_machines_unless_that_was_asked_for(path):
    assert service(path, "lead")["ports"] == ["127.0.0.1:5555:5555"]
    assert service(path, "lead", ADDRESS="192.168.1.10")["ports"] == ["192.168.1.10:5555:5555"]


def test_on_one_host_the_back_waits_for_the_model():
    assert service(ONE_HOST, "back")["depends_on"] == {"lead": {"condition": "service_healthy"}}
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    assert "HEALTHCHECK" in dockerfile
    assert "COPY docker/health.py /opt/health.py" in dockerfile
    assert "!docker/health.py" in (ROOT / ".dockerignore").read_text().splitlines()


def test_with_https_the_back_of_one_host_dials_that():
    assert service(TLS[1][0], "back")["environment"]["BACK_LEAD"] == "https://lead:5555"


@pytest.mark.parametrize(("path", "name"), CUDA)
def test_the_cuda_variants_put_the_model_on_the_gpu(path, name):
    given = service(path, name)["environment"][f"{name}_N_GPU_LAYERS".upper()]
    assert SETTINGS[name].from_options(n_gpu_layers=given).compute.n_gpu_layers == 99


@pytest.mark.parametrize(("path", "name"), CUDA)
def test_the_cuda_variants_set_arguments_that_the_dockerfile_has(path, name):
    arguments = yaml.safe_load(path.read_text())["services"][name]["build"]["args"]
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    assert all(f"ARG {argument}=" in dockerfile for argument in arguments)


@pytest.fixture(scope="module")
def docker_compose():
    """The command of Docker Compose, in either of its forms."""
    if docker := shutil.which("docker"):
        plugin = [docker, "compose"]
        if subprocess.run([*plugin, "version"], check=False, capture_output=True).returncode == 0:
            return plugin
    if alone := shutil.which("docker-compose"):
        return [alone]
    return pytest.skip("no docker compose")


@pytest.mark.parametrize(
    "paths", [[LEAD], [BACK], [ONE_HOST], [FLEET], *([SINGLE[name], path] for path, name in CUDA)]
)
def test_docker_compose_takes_the_files(docker_compose, paths):
    files = [part for path in paths for part in ("-f", str(path))]
    environment = {name: value for name, value in os.environ.items() if name[:5] not in {"LEAD_", "BACK_"}}
    result = subprocess.run(
        [*docker_compose, *files, "config"], check=False, capture_output=True, text=True, env=environment
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_every_variable_works_in_the_images():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.findall(r'"llama-duo\[(.+)\]"', (ROOT / "docker/Dockerfile").read_text())
    without = {"bench", "completions", "dev", "ray", "smollm2"}
    assert [set(extras.split(",")) for extras in installed] == [optional.keys() - without]


def test_the_images_do_not_run_as_root():
    for name in ("Dockerfile", "chat.Dockerfile"):
        users = [line for line in (ROOT / "docker" / name).read_text().splitlines() if line[:4] == "USER"]
        assert users, name
        assert not {"USER root", "USER 0"} & set(users), name
