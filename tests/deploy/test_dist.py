"""What a version is shipped as: built by one command, and checked without a network, signatures too."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import dist
from tests.support import installed_environments

ROOT = Path(__file__).parents[2]


def keys(folder: Path) -> tuple[Path, Path]:
    """A key as cosign has them, and its public half."""
    private, public = folder / "key.pem", folder / "key.pub"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)], check=True)
    subprocess.run(["openssl", "ec", "-in", str(private), "-pubout", "-out", str(public)], check=True, capture_output=True)
    return private, public


def test_the_image_s_packages_are_those_of_the_constraints() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pinned = {name.lower().replace("_", "-").replace(".", "-"): version for name, version in pinned.items()}
    locked = dist.locked()
    assert {"numpy", "prefect", "duckdb"} <= locked.keys()
    assert all(digests for _, digests in locked.values())
    assert {name: version for name, (version, _) in locked.items() if pinned.get(name, version) != version} == {}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What ``make dist`` makes of a clean clone, but for the image, and the public key."""
    folder = tmp_path_factory.mktemp("dist")
    private, public = keys(folder)
    return installed_environments.shipped(folder, f"KEY={private}"), public


def checked(folder: Path, public: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/dist.py", "check", str(folder), "--public-key", str(public)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.large
def test_what_is_shipped_is_complete_and_signed(built: tuple[Path, Path]) -> None:
    folder, public = built
    done = checked(folder, public)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{len(dist.locked())} packages" in done.stdout
    kinds = {"".join(Path(each.name).suffixes[-2:]) for each in folder.iterdir()}
    assert {".oci.tar", ".cdx.json", ".intoto.json", ".tar.gz"} <= {kind.removesuffix(".sig") for kind in kinds} | kinds
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert f"built from the commit {head}" in done.stdout
    assert {each.name.split("-")[0] for each in folder.glob("*.whl")} == {
        "dpdist",
        "dpdist_airflow",
        "dpdist_dagster",
        "dpdist_dbt",
    }


@pytest.mark.large
def test_a_missing_wheel_is_found_though_nothing_names_it(built: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    shutil.copytree(built[0], folder)
    (folder / "dpdist_dbt-1.0.0-py3-none-any.whl").unlink()
    statement = json.loads((folder / dist.PROVENANCE).read_text())
    statement["subject"] = [each for each in statement["subject"] if not each["name"].startswith("dpdist_dbt")]
    (folder / dist.PROVENANCE).write_text(json.dumps(statement))
    names = sorted(each.name for each in folder.iterdir() if not each.name.endswith(".sig") and each.name != dist.SUMS)
    (folder / dist.SUMS).write_text("".join(f"{dist.sha256((folder / name).read_bytes())}  {name}\n" for name in names))
    with pytest.raises(dist.Wrong, match=r"where .*dpdist_dbt-1\.0\.0 should be"):
        dist.check(folder, None)


FAULTS = {
    "a changed wheel": ("*.whl", b"x", "is not the file that SHA256SUMS names"),
    "a list of packages that names fewer": ("sbom.cdx.json", None, "is not the file that SHA256SUMS names"),
    "a file that nobody names": ("more.txt", b"x", "SHA256SUMS names"),
}


@pytest.mark.large
@pytest.mark.parametrize("fault", FAULTS)
def test_a_changed_file_is_found(built: tuple[Path, Path], tmp_path: Path, fault: str) -> None:
    pattern, added, said = FAULTS[fault]
    folder = tmp_path / "made"
    shutil.copytree(built[0], folder)
    file = next(folder.glob(pattern), folder / pattern)
    if added is None:
        content = json.loads(file.read_text())
        content["components"].pop()
        file.write_text(json.dumps(content))
    else:
        file.write_bytes((file.read_bytes() if file.exists() else b"") + added)
    done = checked(folder, built[1])
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.large
def test_sums_that_were_written_anew_need_the_key(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Whoever changes a file can write its digest, and that of the provenance, but not the signature."""
    folder = tmp_path / "made"
    shutil.copytree(built[0], folder)
    other, _ = keys(tmp_path)
    chart = next(folder.glob("*.tgz"))
    chart.write_bytes(chart.read_bytes() + b"x")
    statement = json.loads((folder / dist.PROVENANCE).read_text())
    for subject in statement["subject"]:
        if subject["name"] == chart.name:
            subject["digest"]["sha256"] = dist.sha256(chart.read_bytes())
    (folder / dist.PROVENANCE).write_text(json.dumps(statement))
    names = sorted(each.name for each in folder.iterdir() if not each.name.endswith(".sig") and each.name != dist.SUMS)
    (folder / dist.SUMS).write_text("".join(f"{dist.sha256((folder / name).read_bytes())}  {name}\n" for name in names))
    for name in (chart.name, dist.PROVENANCE, dist.SUMS):
        made = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(other), str(folder / name)], capture_output=True, check=True
        )
        (folder / f"{name}.sig").write_bytes(base64.b64encode(made.stdout))
    done = checked(folder, built[1])
    assert done.returncode == 1
    assert "is not one of the key" in done.stderr


@pytest.mark.large
@pytest.mark.skipif(shutil.which("cosign") is None, reason="needs cosign")
def test_cosign_accepts_the_signatures_and_no_changed_file(built: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    shutil.copytree(built[0], folder)
    other = keys(tmp_path)[1]

    def accepts(name: str, public: Path = built[1]) -> bool:
        options = ["--key", str(public), "--signature", f"{name}.sig", "--insecure-ignore-tlog"]
        done = subprocess.run(
            ["cosign", "verify-blob", *options, name], cwd=folder, capture_output=True, text=True, check=False
        )
        assert ("Verified OK" in done.stderr) == (done.returncode == 0)
        return done.returncode == 0

    names = sorted(each.name.removesuffix(".sig") for each in folder.glob("*.sig"))
    assert len(names) > 5
    assert [name for name in names if not accepts(name)] == []
    assert not accepts(names[0], other)
    (folder / names[0]).write_bytes((folder / names[0]).read_bytes() + b"x")
    assert not accepts(names[0])
