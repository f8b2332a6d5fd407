import re
from pathlib import Path

import pytest
import yaml

from back.settings import BackSettings
from chat.settings import ChatSettings
from lead.http.middleware.auth import _ROLES as SPECIAL_ROLES
from lead.server.app import create_app
from lead.server.server import _END_SECONDS as END_SECONDS
from lead.settings.lead_settings import LeadSettings

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
VERSION = "1.34"
README = (FOLDER / "README.md").read_text()
SETTINGS = {"lead": LeadSettings, "back": BackSettings}
PODS = [("Deployment", "lead"), ("DaemonSet", "back")]


def manifests():
    for path in sorted(FOLDER.glob("*.yaml")):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if "kind" in each)


def is_builtin(manifest):
    group = manifest["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and group.startswith("networking"))


ALL = {(each["kind"], each["metadata"]["name"]): each for each in manifests()}
BUILTIN = {name: each for name, each in ALL.items() if is_builtin(each)}


def pod(kind, name):
    return ALL[kind, name]["spec"]["template"]["spec"]


def container(kind, name):
    (found,) = pod(kind, name)["containers"]
    return found


def option_variables(settings):
    """All environment variables that a program reads as options."""
    spellings = settings.dialect.spellings.values()
    own = {f"{settings.prefix}{name}".upper() for name in settings.options()}
    return own.union(*(spelling.variables for spelling in spellings))


def service_variables(service):
    """The variables that Kubernetes sets for a Service in the pods of its namespace."""
    prefix = service["metadata"]["name"].upper().replace("-", "_")
    variables = {f"{prefix}_SERVICE_HOST", f"{prefix}_SERVICE_PORT", f"{prefix}_PORT"}
    for port in service["spec"]["ports"]:
        variables.add(f"{prefix}_SERVICE_PORT_{port['name'].upper()}")
        link = f"{prefix}_PORT_{port['port']}_{port.get('protocol', 'TCP')}"
        variables |= {link, f"{link}_PROTO", f"{link}_PORT", f"{link}_ADDR"}
    return variables


def test_what_has_no_schema_is_what_extensions_define():
    assert set(ALL) - set(BUILTIN) == {("InferencePool", "leads"), ("HTTPRoute", "leads")}


@pytest.mark.parametrize("name", BUILTIN, ids=" ".join)
def test_the_api_knows_every_field(name):
    validator = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes-validate: pip install '.[dev]'"
    )
    validator.validate(BUILTIN[name], VERSION, strict=True)


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_the_programs_start_with_what_the_manifests_set(kind, name, monkeypatch):
    for variable in container(kind, name)["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "node-1"))
    names = {f"{name}_{field}".upper() for field in SETTINGS[name].options()}
    assert {variable["name"] for variable in container(kind, name)["env"]} <= names
    monkeypatch.setenv("LEAD_HOST", "0.0.0.0")  # as the image has it
    assert SETTINGS[name].from_command_line([])


def test_answers_may_finish_before_a_lead_is_killed():
    lead = container("Deployment", "lead")
    variables = {each["name"]: each.get("value") for each in lead["env"]}
    pause = lead["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = pod("Deployment", "lead")["terminationGracePeriodSeconds"]
    assert grace > pause + float(variables["LEAD_DRAIN_SECONDS"]) + END_SECONDS


def test_everything_selects_the_leads():
    labels = ALL["Deployment", "lead"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        ALL["Deployment", "lead"]["spec"]["selector"]["matchLabels"],
        ALL["Service", "leads"]["spec"]["selector"],
        ALL["PodDisruptionBudget", "lead"]["spec"]["selector"]["matchLabels"],
        ALL["NetworkPolicy", "lead"]["spec"]["podSelector"]["matchLabels"],
        ALL["InferencePool", "leads"]["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * len(selectors)
    assert ALL["HorizontalPodAutoscaler", "lead"]["spec"]["scaleTargetRef"]["name"] == "lead"


def test_backs_dial_the_service():
    (port,) = ALL["Service", "leads"]["spec"]["ports"]
    variables = {each["name"]: each.get("value") for each in container("DaemonSet", "back")["env"]}
    assert variables["BACK_LEAD"] == f"http://leads:{port['port']}"


@pytest.mark.parametrize("settings", [LeadSettings, BackSettings, ChatSettings])
def test_no_service_sets_an_option(settings):
    """A Service named `lead` would set LEAD_PORT to an address, and no lead of its namespace would start."""
    for (kind, name), manifest in ALL.items():
        if kind == "Service":
            assert not service_variables(manifest) & option_variables(settings), name


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_a_service_of_somebody_else_sets_no_option(kind, name):
    assert pod(kind, name)["enableServiceLinks"] is False


def test_a_back_does_not_get_the_clients_key():
    volumes = pod("DaemonSet", "back")["volumes"]
    (keys,) = [each["secret"] for each in volumes if each["name"] == "keys"]
    assert keys["items"] == [{"key": "back", "path": "back"}]


def test_a_leads_restart_of_its_engine_is_no_reason_to_kill_it():
    assert "tcpSocket" in container("Deployment", "lead")["livenessProbe"]


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_containers_have_no_more_rights_than_they_need(kind, name):
    found = container(kind, name)
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(kind, name)["securityContext"]["runAsNonRoot"]
    assert not pod(kind, name)["automountServiceAccountToken"]


@pytest.mark.parametrize(("kind", "name"), PODS)
def test_caches_lie_where_the_program_may_write(kind, name):
    """Caches of models and vocabularies: a back that cannot save the lead's vocabulary retries forever."""
    volumes = {each["name"]: each for each in pod(kind, name)["volumes"]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in container(kind, name)["volumeMounts"]}
    assert "emptyDir" in mounted["/home/duo/.cache"]


def test_every_label_that_a_manifest_asks_for_is_set_in_the_readme():
    wanted = set()
    for path in FOLDER.glob("*.yaml"):
        wanted |= set(re.findall(r'^\s+(llama-duo/\w+): "true"', path.read_text(), re.MULTILINE))
    assert wanted == set(re.findall(r"^kubectl label .* (llama-duo/\w+)=true", README, re.MULTILINE))


def test_what_is_scaled_has_no_number_of_its_own():
    """Each `kubectl apply` would reset the number."""
    assert "replicas" not in ALL["Deployment", "lead"]["spec"]


# The inference extension


def test_a_lead_for_the_endpoint_picker_answers_every_host(monkeypatch):
    """A lead without keys checks host names. A gateway keeps the client's, and backs use the Service's."""
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    env = container("Deployment", "lead")["env"] + yaml.safe_load(block)
    for variable in env:
        if not variable["name"].endswith("_KEY_FILE"):
            monkeypatch.setenv(variable["name"], variable["value"])
    monkeypatch.setenv("LEAD_HOST", "0.0.0.0")  # as the image has it
    security = LeadSettings.from_command_line([]).security
    hosts = security.host_names("0.0.0.0")
    assert not security.has_keys
    assert hosts.allows("leads:5555")
    assert hosts.allows("llm.example.com")


def test_the_gateway_routes_what_any_client_may_use_and_nothing_else():
    (rule,) = ALL["HTTPRoute", "leads"]["spec"]["rules"]
    paths = {match["path"]["value"] for match in rule["matches"]}
    assert {match["path"]["type"] for match in rule["matches"]} == {"Exact"}
    assert paths <= create_app().openapi()["paths"].keys()
    assert not paths & {path for _method, path in SPECIAL_ROLES}


def test_the_gauges_are_exported():
    """The gauges that scale the leads, and the gauges that the endpoint picker reads."""
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
