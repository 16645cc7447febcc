"""Rendering of compose/chart by helm."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import compose

FILES: Final = Path(compose.__file__).parent
BOUND_S: Final = 60

Manifest = Mapping[str, Any]


def helm(values: Mapping[str, Any], kubernetes: str) -> subprocess.CompletedProcess[str]:
    """Render the chart for a version of Kubernetes."""
    return subprocess.run(
        ["helm", "template", "test", str(FILES / "chart"), "--kube-version", kubernetes, "--values", "-"],
        input=json.dumps(values), capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip


def pods_of(manifests: Iterable[Manifest]) -> dict[str, dict[str, Any]]:
    """Return the pod specification of each component."""
    specs = {}
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "CronJob"}:
            spec = manifest["spec"]["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else manifest["spec"]
            specs[manifest["metadata"]["labels"]["app.kubernetes.io/component"]] = spec["template"]["spec"]
    return specs
