"""The Helm chart: rendered with four sets of values, and checked with the schemas of three Kubernetes versions."""

import json
import re
from functools import cache
from typing import Any, Final

import kubernetes_schemas
import pytest
import yaml
from chart import FILES, Manifest, helm, pods_of
from jsonschema import Draft7Validator
from test_documentation import parse

pytestmark = pytest.mark.needs("helm")

SCHEMAS: Final = json.loads(kubernetes_schemas.FILE.read_text())
LEAST: Final = {"bootstrapServers": "kafka-1:9092"}
OFF: Final = {"enabled": False}
ON: Final = {"enabled": True}
VALUES: Final[dict[str, dict[str, Any]]] = {
    "least": LEAST,
    "all": {
        "bootstrapServers": "kafka-1:9093,kafka-2:9093",
        "clientSecret": "kafka-login",
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "kafka-reader",
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "kafka", "operator": "Exists", "effect": "NoSchedule"}],
        "guard": {"replicas": 3, "topics": ["orders-*", "__consumer_offsets"], "extraArgs": ["--interval", "5"]},
        "watch": {
            "topics": ["orders-*"],
            "image": {"digest": f"sha256:{'0' * 64}"},
            "state": {"size": "5Gi", "storageClassName": "fast"},
        },
        "audit": {**ON, "topics": ["*"], "extraArgs": ["--format", "json"]},
        "serviceMonitor": {**ON, "labels": {"release": "prometheus"}},
        "prometheusRule": {**ON, "labels": {"release": "prometheus"}},
        "dashboard": ON,
    },
    "guard": {**LEAST, "watch": OFF, "guard": {"replicas": 1}, "serviceMonitor": ON, "prometheusRule": ON},
    "audits": {**LEAST, "guard": OFF, "watch": {"state": {"existingClaim": "claim"}}, "audit": ON},
}
COMPONENTS: Final = {
    "least": {"guard", "watch"}, "all": {"guard", "watch", "audit"}, "guard": {"guard"}, "audits": {"watch", "audit"},
}  # fmt: skip


@cache
def rendered(name: str, kubernetes: str = "1.33") -> tuple[Manifest, ...]:
    done = helm(VALUES[name], kubernetes)
    assert done.returncode == 0, done.stderr
    return tuple(filter(None, yaml.safe_load_all(done.stdout)))


def kind(manifest: Manifest) -> str:
    return f"{manifest['apiVersion']} {manifest['kind']}"


def problems(manifest: Manifest, kubernetes: str) -> list[str]:
    """Return what an API server of this version rejects. Raises KeyError for a kind that it does not have."""
    described = SCHEMAS["kubernetes"][kubernetes]
    schema = SCHEMAS["operator"].get(kind(manifest)) or {
        "$ref": f"#/definitions/{described['kinds'][kind(manifest)]}",
        "definitions": described["definitions"],
    }
    return [f"{error.json_path}: {error.message}" for error in Draft7Validator(schema).iter_errors(manifest)]


def pods(name: str) -> dict[str, dict[str, Any]]:
    return pods_of(rendered(name))


@pytest.mark.parametrize("kubernetes", kubernetes_schemas.KUBERNETES)
@pytest.mark.parametrize("name", VALUES)
def test_manifests_are_valid(name: str, kubernetes: str) -> None:
    manifests = rendered(name, kubernetes)
    assert [problem for manifest in manifests for problem in problems(manifest, kubernetes)] == []
    names = [(kind(manifest), manifest["metadata"]["name"]) for manifest in manifests]
    assert len(set(names)) == len(names)


def test_every_kind_is_rendered() -> None:
    kinds = {*SCHEMAS["kubernetes"]["1.33"]["kinds"], *SCHEMAS["operator"]} - {"source"}
    assert {kind(manifest) for manifest in rendered("all")} == kinds


@pytest.mark.parametrize(("path", "value", "message"), [
    (("spec", "template", "spec", "containers", 0, "livenessprobe"), {}, "'livenessprobe' was unexpected"),
    (("spec", "replicas"), "two", "'two' is not of type 'integer'"),
    (("spec", "selector"), None, "None is not of type 'object'"),
])  # fmt: skip
def test_an_invalid_manifest_is_found(path: tuple[Any, ...], value: object, message: str) -> None:
    (guard,) = (manifest for manifest in rendered("guard") if manifest["kind"] == "Deployment")
    manifest = node = json.loads(json.dumps(guard))
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    assert message in "".join(problems(manifest, "1.33"))


def test_brokers_are_required() -> None:
    done = helm({}, "1.33")
    assert done.returncode != 0
    assert "bootstrapServers is required" in done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_each_component_runs_a_command_without_rights(name: str) -> None:
    assert pods(name).keys() == COMPONENTS[name]
    for component, pod in pods(name).items():
        (container,) = pod["containers"]
        parse(container["args"])
        assert container["args"][0] == component
        security = container["securityContext"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert {"requests", "limits"} <= container["resources"].keys()
        if component != "audit":
            probes = [container[f"{kind_of_probe}Probe"]["httpGet"] for kind_of_probe in ("readiness", "liveness")]
            assert probes == [{"path": "/health", "port": "metrics"}] * 2
            (port,) = container["ports"]
            assert port["containerPort"] == {"guard": 9464, "watch": 9465}[component]


def test_secrets_are_mounted_and_never_rendered() -> None:
    manifests = rendered("all")
    assert "Secret" not in {manifest["kind"] for manifest in manifests}
    for pod in pods("all").values():
        args = pod["containers"][0]["args"]
        (client,) = (volume for volume in pod["volumes"] if volume["name"] == "client")
        assert client["secret"]["secretName"] == "kafka-login"
        assert args[args.index("--command-config") + 1] == "/etc/kafka-client/client.properties"
    assert all("--command-config" not in pod["containers"][0]["args"] for pod in pods("least").values())


def test_services_and_monitors_select_the_pods() -> None:
    labels = {}
    for manifest in rendered("all"):
        if manifest["kind"] == "Deployment":
            name = manifest["metadata"]["labels"]["app.kubernetes.io/component"]
            labels[name] = manifest["spec"]["template"]["metadata"]["labels"]
            assert manifest["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    services = [manifest for manifest in rendered("all") if manifest["kind"] == "Service"]
    for service in services:
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        assert service["spec"]["selector"].items() <= labels[component].items()
        assert service["spec"]["publishNotReadyAddresses"], "an unhealthy pod is scraped, too"
    monitors = [manifest for manifest in rendered("all") if manifest["kind"] == "ServiceMonitor"]
    selectors = [monitor["spec"]["selector"]["matchLabels"].items() for monitor in monitors]
    assert len(monitors) == len(services) == 2
    assert all(any(selector <= service["metadata"]["labels"].items() for service in services) for selector in selectors)


def groups(name: str) -> list[Any]:
    rules = [manifest for manifest in rendered(name) if manifest["kind"] == "PrometheusRule"]
    return [group for manifest in rules for group in manifest["spec"]["groups"]]


def test_rules_and_dashboard_are_the_files_beside_the_chart() -> None:
    rules = yaml.safe_load((FILES / "guard/alerts.yaml").read_text())["groups"]
    assert groups("all") == rules
    assert [group["name"] for group in groups("guard")] == ["compaction-guard"]
    (board,) = (manifest["data"] for manifest in rendered("all") if manifest["kind"] == "ConfigMap")
    assert board["compaction.json"] == (FILES / "guard/dashboard.json").read_text()


def test_the_versions_are_those_of_the_project() -> None:
    project = (FILES.parent / "pyproject.toml").read_text()
    chart = yaml.safe_load((FILES / "chart/Chart.yaml").read_text())
    (version,) = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    assert (chart["version"], chart["appVersion"]) == (version, f"v{version}")
