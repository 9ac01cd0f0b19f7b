"""Whatever a release's files say of its guarantee is what its certificate says: numbers, unit, variant, and what is not protected.

Every file of words is searched for claims, not for lines that are known: a number that is called rho, epsilon or delta anywhere is to be
one of the certificate's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy import keys
from tests.pipeline.test_private_categories import ASKED, towns
from tests.plugins.catalogue.test_metadata import ABOUT
from tests.support import small_release

PERSON = {"path": "records.parquet", "person": {"column": "person", "most_records": 3}}
RELEASES: dict[str, dict[str, Any]] = {
    "records, rho": {},
    "persons, epsilon and delta": {
        "records": PERSON,
        "budget": {"epsilon": 0.5, "delta": 1e-6},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1, "delta": 1e-6}},
    },
    "persons, pure": {
        "records": PERSON,
        "budget": {"epsilon": 0.5},
        "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
        "mechanism": "identity",
    },
    "selected names": {"table": towns(), **ASKED},
    "public counts": {"mechanism": "identity", "postprocess": {"known": [{"count": 3000}]}},
}
CLAIMED = re.compile(r"\b(rho|epsilon|delta) = ([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?(?:/[0-9]+)?)")
DESCRIPTIONS = {
    "croissant.json": "description",
    "answers.csv-metadata.json": "dc:description",
}


@dataclass(frozen=True)
class Claims:
    """What is published of a release for catalogues, and what it is measured by."""

    folder: Path
    certificate: dict[str, Any]
    deployment: dict[str, Any]

    def descriptions(self) -> Iterator[tuple[str, str]]:
        """The paragraph about the guarantee in each file of metadata."""
        for name, key in DESCRIPTIONS.items():
            yield name, json.loads((self.folder / name).read_text())[key]
        loss = self.deployment["privacy_loss"]
        yield "deployment.yaml", f"{loss['privacy_unit']}: {loss['privacy_parameters_details']}"


@pytest.fixture(scope="module", params=RELEASES)
def claims(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Claims:
    home = tmp_path_factory.mktemp("claims") / "home"
    keys.initialise(home)
    output = {"folder": str(home.parent / "out")}
    path = small_release.write(home.parent / "data", about=ABOUT, output=output, **RELEASES[request.param])
    folder = Path(small_release.run(path, home).folder)
    record = yaml.safe_load((folder / "deployment.yaml").read_text())
    return Claims(folder, json.loads((folder / "release.json").read_text()), record["deployment"])


def test_every_claim_is_the_certificate_s(claims: Claims) -> None:
    privacy = claims.certificate["privacy"]
    allowed = {"rho": [privacy["rho_decimal"]], "epsilon": [privacy["epsilon"]], "delta": [privacy["delta"]]}
    for selection in claims.certificate.get("selections", ()):
        allowed["rho"].append(selection["rho"])
        allowed["delta"].append(selection["delta"])
    numbers = {name: [float(_number(each)) for each in values] for name, values in allowed.items()}
    for file in (*DESCRIPTIONS, "deployment.yaml", "README.md", "CITATION.cff", "dictionary.csv"):
        if (claims.folder / file).exists():
            for name, said in CLAIMED.findall((claims.folder / file).read_text()):
                assert any(_number(said) == pytest.approx(true, rel=1e-2) for true in numbers[name]), (file, name, said)
    for file, text in claims.descriptions():
        said = dict(CLAIMED.findall(text))
        assert _number(said["rho"]) == pytest.approx(privacy["rho_decimal"], rel=1e-5), file
        assert _number(said["epsilon"]) == pytest.approx(privacy["epsilon"], rel=1e-5), file
        assert ("delta" in said) == bool(privacy["delta"]), file
        assert privacy["unit"] in text, file
    loss = claims.deployment["privacy_loss"]
    pure = privacy["noise"] == "Laplace"
    assert loss["privacy_unit"] == privacy["unit"]
    assert loss["privacy_parameters"] == {
        "epsilon": privacy["epsilon"],
        **({} if pure else {"rho": privacy["rho_decimal"], "delta": privacy["delta"]}),
    }


def _number(said: str | float) -> float:
    above, _, below = str(said).partition("/")
    return float(above) / float(below or 1)


def test_the_variant_is_the_strongest_that_holds(claims: Claims) -> None:
    """Names that were selected have a delta of their own, which no statement of rho alone covers."""
    certificate = claims.certificate
    expected = "Pure DP" if certificate["privacy"]["noise"] == "Laplace" else "Zero-concentrated DP"
    if "selections" in certificate:
        expected = "Approximate DP"
    assert claims.deployment["dp_variant"]["variant_name"] == expected


def test_what_is_published_without_noise_is_named(claims: Claims, request: pytest.FixtureRequest) -> None:
    public = "public counts" in request.node.name
    told = claims.deployment["dp_variant"]["unprotected_quantities"]
    assert ("3000" in told) == public
    assert told.startswith("None but") == (not public)
