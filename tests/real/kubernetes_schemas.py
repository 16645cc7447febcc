"""Write kubernetes-schemas.json: the JSON schemas of the objects in compose/chart, from published OpenAPI descriptions.

    python tests/real/kubernetes_schemas.py

Needs `go`, which downloads the modules below and verifies their checksums. The descriptions are Kubernetes' and the
Prometheus operator's, both under the Apache License 2.0; texts and what a validator does not use are left out. Objects
with named properties take no others, as an API server with strict field validation.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

FILE: Final = Path(__file__).with_name("kubernetes-schemas.json")
KUBERNETES: Final = {"1.33": "v1.33.13", "1.35": "v1.35.4", "1.37": "v1.37.2"}
OPERATOR: Final = "v0.85.0"
KINDS: Final = {
    "v1": ("ConfigMap", "PersistentVolumeClaim", "Service"), "apps/v1": ("Deployment",), "batch/v1": ("CronJob",),
    "policy/v1": ("PodDisruptionBudget",),
}  # fmt: skip
UNUSED: Final = {"description", "format", "default"}
FREE: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["number", "string"]},
}
"""Types that the description calls strings, and an API server reads from numbers, too."""


def strict(node: Any, *, of_names: bool = False) -> Any:
    """Return a schema without what is not used. ``of_names``: its keys are names of properties."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: strict(value, of_names=key in {"properties", "definitions"} and not of_names)
        for key, value in node.items()
        if of_names or (key not in UNUSED and not key.startswith("x-"))
    }
    if not of_names and "properties" in kept and "x-kubernetes-preserve-unknown-fields" not in node:
        kept.setdefault("additionalProperties", False)
    return kept


def module(path: str, version: str) -> Path:
    """Download a Go module; return its folder."""
    answer = subprocess.check_output(["go", "mod", "download", "-json", f"{path}@{version}"])
    return Path(json.loads(answer)["Dir"])


def of_kubernetes(version: str) -> dict[str, Any]:
    """Return a schema with the definitions of `KINDS`, and of each what it refers to; ``kinds``: their names."""
    folder = module("k8s.io/kubernetes", version)
    described = json.loads((folder / "api/openapi-spec/swagger.json").read_text())["definitions"]
    kinds = {
        f"{api} {kind['kind']}": name
        for name, schema in described.items()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
        if kind["kind"] in KINDS.get(api := "/".join(filter(None, (kind["group"], kind["version"]))), ())
    }
    needed = list(kinds.values())
    for name in needed:
        used = re.findall(r'"#/definitions/([^"]+)"', json.dumps(described[name]))
        needed.extend(dict.fromkeys(other for other in used if other not in needed))
    definitions = {name: FREE.get(name) or strict(described[name]) for name in sorted(needed)}
    return {"source": f"k8s.io/kubernetes@{version}", "kinds": kinds, "definitions": definitions}


def of_the_operator() -> dict[str, Any]:
    """Return the schemas of ServiceMonitor and PrometheusRule by kind."""
    folder = module("github.com/prometheus-operator/prometheus-operator", OPERATOR) / "example/prometheus-operator-crd"
    schemas = {}
    for name in ("servicemonitors", "prometheusrules"):
        described = yaml.safe_load((folder / f"monitoring.coreos.com_{name}.yaml").read_text())["spec"]
        schemas[f"monitoring.coreos.com/v1 {described['names']['kind']}"] = strict(
            described["versions"][0]["schema"]["openAPIV3Schema"]
        )
    return schemas


def main() -> None:
    content = {
        "kubernetes": {name: of_kubernetes(version) for name, version in KUBERNETES.items()},
        "operator": {"source": f"github.com/prometheus-operator/prometheus-operator@{OPERATOR}", **of_the_operator()},
    }
    FILE.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
