"""The manifests in docs/kubernetes.md: do their parts fit each other, and what the code wants?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from util_paths import ROOT

from horovod._bootstrap.discovery.method import secret_of
from horovod._bootstrap.identity import detect


def manifests() -> dict[str, Any]:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    return {item["kind"]: item for block in blocks for item in yaml.safe_load_all(block)}


def test_indexed_job() -> None:
    found = manifests()
    job, service, secret = found["Job"], found["Service"], found["Secret"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    last = str(spec["completions"] - 1)
    identity = detect({**variables, "JOB_COMPLETION_INDEX": last})
    assert identity.size == spec["completions"] == spec["parallelism"]
    assert identity.discovery is not None
    assert identity.discovery.address == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert str(identity.discovery.port) in (ROOT / "docs" / "kubernetes.md").read_text()
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"] and volume["secret"]["secretName"] == secret["metadata"]["name"]
    assert volume["secret"]["defaultMode"] & 0o077 == 0
    assert variables["HOROVOD_SECRET_KEY_FILE"] == f"{mount['mountPath']}/{next(iter(secret['stringData']))}"


@pytest.mark.parametrize("way", ["file", "variable"])
def test_the_secret_of_the_example_is_refused_as_it_stands(way: str, tmp_path: Path) -> None:
    (text,) = manifests()["Secret"]["stringData"].values()
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(text)
    environ = {"HOROVOD_SECRET_KEY_FILE": str(file)} if way == "file" else {"_HOROVOD_SECRET_KEY": text}
    with pytest.raises(ValueError, match="the example's text"):
        secret_of(environ)


def test_mpi_job() -> None:
    spec = manifests()["MPIJob"]["spec"]
    replicas = spec["mpiReplicaSpecs"]
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    ranks = int(launcher["command"][launcher["command"].index("-np") + 1])
    assert ranks == spec["slotsPerWorker"] * replicas["Worker"]["replicas"]
