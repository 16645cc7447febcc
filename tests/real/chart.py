"""Rendering of compose/chart by helm."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sandbox import completed

import compose

FILES: Final = Path(compose.__file__).parent

Manifest = Mapping[str, Any]


def helm(values: Mapping[str, Any], kubernetes: str) -> subprocess.CompletedProcess[str]:
    command = ("helm", "template", "test", FILES / "chart", "--kube-version", kubernetes, "--values", "-")
    return completed(*command, input=json.dumps(values))


def pods_of(manifests: Iterable[Manifest]) -> dict[str, dict[str, Any]]:
    specs = {}
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "CronJob"}:
            spec = manifest["spec"]["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else manifest["spec"]
            specs[manifest["metadata"]["labels"]["app.kubernetes.io/component"]] = spec["template"]["spec"]
    return specs
