"""The manifests for Kubernetes: the API knows every field, and what they name exists."""

from pathlib import Path

import pytest
import yaml

from back.settings import BackSettings
from lead.server.server import _END_SECONDS as END_SECONDS
from lead.settings.lead_settings import LeadSettings

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
VERSION = "1.34"
SETTINGS = {"lead": LeadSettings, "back": BackSettings}


def manifests():
    for path in sorted(FOLDER.glob("*.yaml")):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if "kind" in each)


def is_builtin(manifest):
    group = manifest["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and group.startswith("networking"))


ALL = {(each["kind"], each["metadata"]["name"]): each for each in manifests()}
BUILTIN = {name: each for name, each in ALL.items() if is_builtin(each)}


def container(kind, name):
    (found,) = ALL[kind, name]["spec"]["template"]["spec"]["containers"]
    return found


def test_what_has_no_schema_is_what_extensions_define():
    assert set(ALL) - set(BUILTIN) == {("InferencePool", "leads"), ("HTTPRoute", "leads")}


@pytest.mark.parametrize("name", BUILTIN, ids=" ".join)
def test_the_api_knows_every_field(name):
    validator = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes-validate: pip install '.[dev]'"
    )
    validator.validate(BUILTIN[name], VERSION, strict=True)


def test_the_check_finds_a_misspelled_field():
    validator = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes-validate: pip install '.[dev]'"
    )
    service = {**ALL["Service", "lead"], "spec": {"selectors": {"app": "lead"}}}
    with pytest.raises(validator.ValidationError):
        validator.validate(service, VERSION, strict=True)


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "lead"), ("DaemonSet", "back")])
def test_the_programs_start_with_what_the_manifests_set(kind, name, monkeypatch):
    for variable in container(kind, name)["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "node-1"))
    names = {f"{name}_{field}".upper() for field in SETTINGS[name].options()}
    assert {variable["name"] for variable in container(kind, name)["env"]} <= names
    monkeypatch.setenv("LEAD_HOST", "0.0.0.0")  # as the image has it
    assert SETTINGS[name].from_command_line([])


def test_answers_may_finish_before_a_lead_is_killed():
    pod = ALL["Deployment", "lead"]["spec"]["template"]["spec"]
    lead = container("Deployment", "lead")
    variables = {each["name"]: each.get("value") for each in lead["env"]}
    pause = lead["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + float(variables["LEAD_DRAIN_SECONDS"]) + END_SECONDS


def test_everything_selects_the_leads():
    labels = ALL["Deployment", "lead"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        ALL["Deployment", "lead"]["spec"]["selector"]["matchLabels"],
        ALL["Service", "lead"]["spec"]["selector"],
        ALL["PodDisruptionBudget", "lead"]["spec"]["selector"]["matchLabels"],
        ALL["NetworkPolicy", "lead"]["spec"]["podSelector"]["matchLabels"],
        ALL["InferencePool", "leads"]["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * len(selectors)
    assert ALL["HorizontalPodAutoscaler", "lead"]["spec"]["scaleTargetRef"]["name"] == "lead"


def test_backs_dial_the_service():
    (port,) = ALL["Service", "lead"]["spec"]["ports"]
    variables = {each["name"]: each.get("value") for each in container("DaemonSet", "back")["env"]}
    assert variables["BACK_LEAD"] == f"http://lead:{port['port']}"


def test_a_back_does_not_get_the_clients_key():
    volumes = ALL["DaemonSet", "back"]["spec"]["template"]["spec"]["volumes"]
    (keys,) = [each["secret"] for each in volumes if each["name"] == "keys"]
    assert keys["items"] == [{"key": "back", "path": "back"}]


def test_a_leads_restart_of_its_engine_is_no_reason_to_kill_it():
    assert "tcpSocket" in container("Deployment", "lead")["livenessProbe"]


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "lead"), ("DaemonSet", "back")])
def test_containers_have_no_more_rights_than_they_need(kind, name):
    found = container(kind, name)
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = ALL[kind, name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]


def test_the_gauges_are_exported():
    """Those that scale the leads and those that the endpoint picker reads."""
    source = "".join(path.read_text() for path in (FOLDER.parents[1] / "lead/metrics").glob("*.py"))
    names = [
        each["pods"]["metric"]["name"].replace("_", ":", 1)
        for each in ALL["HorizontalPodAutoscaler", "lead"]["spec"]["metrics"]
    ]
    values = yaml.safe_load((FOLDER / "endpoint-picker-values.yaml").read_text())
    names += [name for name in values["inferenceExtension"]["flags"].values() if name]
    adapter = (FOLDER / "prometheus-adapter-values.yaml").read_text()
    for name in names:
        assert f'"{name.partition(":")[2]}"' in source or f'"{name}"' in source, name
    for each in ALL["HorizontalPodAutoscaler", "lead"]["spec"]["metrics"]:
        assert each["pods"]["metric"]["name"].replace("_", ":", 1) in adapter
