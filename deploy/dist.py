"""What a version of dpdist is shipped as, built by one command and checked without a network.

    python deploy/dist.py build FOLDER [--key KEY.pem] [--image podman]
    python deploy/dist.py check FOLDER [--public-key KEY.pub]

``make dist`` and ``make dist-check`` call them. FOLDER then holds the wheel, the source distribution, a wheel for each of Airflow,
Dagster and dbt (``deploy/integrations``), the chart (as ``helm push`` takes it, and as an OCI layout, whose digest is known before any
registry has it), the image as an OCI archive if a builder is named, a CycloneDX list of every package of the image, a provenance
statement (in-toto, SLSA 1.0) and SHA256SUMS. With a key (ECDSA P-256, as cosign has them) each of these has a signature beside it:
``cosign verify-blob --key KEY.pub --signature FILE.sig --insecure-ignore-tlog FILE``, or
``openssl dgst -sha256 -verify KEY.pub -signature <(base64 -d FILE.sig) FILE``.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKED = ROOT / "deploy" / "requirements.txt"
INTEGRATIONS = tuple(sorted(each.parent for each in (ROOT / "deploy" / "integrations").glob("*/pyproject.toml")))
SUMS, SBOM, PROVENANCE = "SHA256SUMS", "sbom.cdx.json", "provenance.intoto.json"
CONFIG, LAYER = "application/vnd.cncf.helm.config.v1+json", "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Wrong(Exception):
    """Something of what is shipped is not as it should be."""


def sha256(data: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def locked() -> dict[str, tuple[str, frozenset[str]]]:
    """Version and SHA-256 digests of every package of the image, by name."""
    entries = re.split(r"^(\S+)==(\S+)", LOCKED.read_text(), flags=re.MULTILINE)[1:]
    found = zip(entries[::3], entries[1::3], entries[2::3], strict=True)
    return {name: (version, frozenset(re.findall(r"sha256:([0-9a-f]{64})", rest))) for name, version, rest in found}


def ran(*command: str) -> str:
    """What a program prints. Raises: Wrong if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(folder: Path, key: Path | None, image: str | None) -> None:
    """Everything, into an empty folder, from a clean checkout. Raises: Wrong."""
    if folder.exists() and any(folder.iterdir()):
        raise Wrong(f"{folder} is not empty; name another folder, or empty it")
    if changed := ran("git", "status", "--porcelain", "--untracked-files=no"):
        raise Wrong(f"the checkout has changes that no commit names; commit or undo them:\n{changed}")
    folder.mkdir(parents=True, exist_ok=True)
    commit, moment = ran("git", "rev-parse", "HEAD").strip(), ran("git", "log", "-1", "--format=%ct").strip()
    environment = ("env", f"SOURCE_DATE_EPOCH={moment}", f"DPDIST_COMMIT={commit}")
    ran(*environment, sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder))
    for integration in INTEGRATIONS:
        with tempfile.TemporaryDirectory() as copy:  # setuptools leaves its folders beside the sources
            source = shutil.copytree(integration, Path(copy, integration.name))
            ran(
                *environment,
                sys.executable,
                "-m",
                "build",
                "--no-isolation",
                "--wheel",
                "--outdir",
                str(folder),
                str(source),
            )
    _chart(folder, int(moment))
    named = [
        str(LOCKED),
        "--pyproject",
        "pyproject.toml",
        "--mc-type",
        "application",
        "--of",
        "JSON",
        "--output-reproducible",
    ]
    ran(sys.executable, "-m", "cyclonedx_py", "requirements", *named, "-o", str(folder / SBOM))
    if image is not None:
        tag = f"localhost/dpdist:{_version()}"
        ran(image, "build", "--file", "deploy/Dockerfile", "--build-arg", f"DPDIST_COMMIT={commit}", "--tag", tag, ".")
        ran(image, "save", "--format", "oci-archive", "--output", str(folder / f"dpdist-image-{_version()}.oci.tar"), tag)
    subjects = {each.name: sha256(each.read_bytes()) for each in sorted(folder.iterdir())}
    (folder / PROVENANCE).write_text(json.dumps(_provenance(subjects, commit), indent=2) + "\n")
    everything = {each.name: sha256(each.read_bytes()) for each in sorted(folder.iterdir())}
    (folder / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in everything.items()))
    if key is not None:
        for each in sorted(folder.iterdir()):
            signature = subprocess.run(
                ["openssl", "dgst", "-sha256", "-sign", str(key), str(each)], capture_output=True, check=True
            ).stdout
            each.with_name(each.name + ".sig").write_bytes(base64.b64encode(signature) + b"\n")


def _version(folder: Path = ROOT) -> str:
    return str(tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"])


def _chart(folder: Path, moment: int) -> None:
    """The archive that ``helm package`` makes, and an OCI layout that holds it."""
    import helm_python

    archive = Path(str(helm_python.package(ROOT / "helm" / "dpdist", destination=folder)))
    with helm_python.Chart.load(ROOT / "helm" / "dpdist") as chart:
        about = json.dumps(chart.metadata).encode()
    layer = archive.read_bytes()
    annotations = {"org.opencontainers.image.title": "dpdist", "org.opencontainers.image.version": _version()}
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _described(CONFIG, about),
            "layers": [_described(LAYER, layer)],
            "annotations": annotations,
        }
    ).encode()
    index = {"schemaVersion": 2, "manifests": [_described(MANIFEST, manifest)]}
    members = {f"blobs/sha256/{sha256(data)}": data for data in (about, layer, manifest)}
    members |= {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    with tarfile.open(folder / f"dpdist-chart-{_version()}.oci.tar", "w") as packed:
        for name, data in sorted(members.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), moment
            packed.addfile(member, io.BytesIO(data))


def _described(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{sha256(data)}", "size": len(data)}


def _provenance(subjects: dict[str, str], commit: str) -> dict[str, Any]:
    """Of what the files were made, by what: a statement of in-toto with the predicate of SLSA."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "deploy/dist.py",
                "externalParameters": {"command": "make dist"},
                "resolvedDependencies": [
                    {"name": "dpdist", "digest": {"gitCommit": commit}},
                    {"name": "deploy/requirements.txt", "digest": {"sha256": sha256(LOCKED.read_bytes())}},
                ],
            },
            "runDetails": {"builder": {"id": f"python {sys.version.split()[0]}"}},
        },
    }


def check(folder: Path, public_key: Path | None) -> list[str]:
    """A line for each thing that is right. Raises: Wrong with the first that is not."""
    lines = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    there = {each.name for each in folder.iterdir() if not each.name.endswith(".sig")}
    if there != {SUMS, *sums}:
        raise Wrong(f"{SUMS} names {sorted(sums)}, found {sorted(there)}")
    for name, digest in sums.items():
        if sha256((folder / name).read_bytes()) != digest:
            raise Wrong(f"{name} is not the file that {SUMS} names")
    statement = json.loads((folder / PROVENANCE).read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    if subjects != {name: digest for name, digest in sums.items() if name != PROVENANCE}:
        raise Wrong(f"{PROVENANCE} is of other files than {SUMS}")
    (commit,) = (
        each["digest"]["gitCommit"]
        for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        if "gitCommit" in each["digest"]
    )
    packages = [f"dpdist-{_version()}", *(f"dpdist_{each.name}-{_version(each)}" for each in INTEGRATIONS)]
    wheels = sorted(each.name for each in folder.glob("*.whl"))
    if wheels != sorted(f"{name}-py3-none-any.whl" for name in packages):
        raise Wrong(f"found the wheels {', '.join(wheels)} where {', '.join(packages)} should be")
    for wheel in wheels:
        _check_wheel(folder / wheel)
    _check_commit(folder / f"{packages[0]}-py3-none-any.whl", commit)
    _check_packages(json.loads((folder / SBOM).read_text()))
    said = [f"{len(sums)} files have the digests of {SUMS}", f"built from the commit {commit}, which the wheel names, too"]
    said.append(f"{SBOM} names the {len(locked())} packages of deploy/requirements.txt with versions and digests")
    if public_key is None:
        return [*said, "signatures were not checked: no --public-key"]
    for name in sorted(there):
        _check_signature(folder / name, public_key)
    return [*said, f"{len(there)} signatures are of the key {public_key}"]


def _check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (record,) = (name for name in packed.namelist() if name.endswith(".dist-info/RECORD"))
        for name, digest, _ in csv.reader(io.StringIO(packed.read(record).decode())):
            found = base64.urlsafe_b64encode(hashlib.sha256(packed.read(name)).digest()).rstrip(b"=").decode()
            if name != record and digest != f"sha256={found}":
                raise Wrong(f"{wheel.name}: {name} is not the file that its RECORD names")


def _check_commit(wheel: Path, commit: str) -> None:
    with zipfile.ZipFile(wheel) as packed:
        if packed.read("dpdist/commit.txt").decode().strip() != commit:
            raise Wrong(f"{wheel.name} names another commit than {PROVENANCE}")


def _check_packages(sbom: dict[str, Any]) -> None:
    listed = {}
    for each in sbom["components"]:
        digests = {item["content"] for part in each["externalReferences"] for item in part.get("hashes", ())}
        listed[each["name"]] = (each["version"], frozenset(digests))
    if listed != locked():
        other = sorted(name for name in {*listed, *locked()} if listed.get(name) != locked().get(name))
        raise Wrong(f"{SBOM} and deploy/requirements.txt differ in {', '.join(other)}")


def _check_signature(file: Path, public_key: Path) -> None:
    signature = file.with_name(file.name + ".sig")
    if not signature.exists():
        raise Wrong(f"{file.name} has no signature")
    raw = file.with_name(file.name + ".der")
    try:
        raw.write_bytes(base64.b64decode(signature.read_bytes()))
        command = ["openssl", "dgst", "-sha256", "-verify", str(public_key), "-signature", str(raw), str(file)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            raise Wrong(f"the signature of {file.name} is not one of the key {public_key}")
    finally:
        raw.unlink()


def main(arguments: list[str]) -> int:
    """The command line. Returns: the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making, checking = commands.add_parser("build"), commands.add_parser("check")
    for each in (making, checking):
        each.add_argument("folder", type=Path)
    making.add_argument("--key", type=Path, help="ECDSA P-256 private key (PEM) that signs every file")
    making.add_argument("--image", choices=["podman", "docker"], help="build the image, too")
    checking.add_argument("--public-key", type=Path, help="public half (PEM) of the key that signed")
    given = parser.parse_args(arguments)
    try:
        if given.command == "build":
            build(given.folder, given.key, given.image)
        else:
            print("\n".join(check(given.folder, given.public_key)))
    except Wrong as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
