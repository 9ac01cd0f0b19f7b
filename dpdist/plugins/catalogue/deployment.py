"""A draft of a record for the public registry of deployments (OpenDP), tier 3, to be looked through before it is handed in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpdist.api.outputs import (
    Output,
    ReleaseContent,
    ReleaseDraft,
    WrittenFile,
    guarantee_in_numbers,
    mechanism_of,
    yaml_document,
)
from dpdist.api.releases import ratio_to_bound


class Deployment(Output):
    """A record for the registry of deployments, where the publisher says something of the release."""

    files = r"deployment\.yaml"
    about = (
        "With [`about`](spec.md#about) in the spec: a draft of a tier 3 record for the [public "
        "registry](https://github.com/opendp/deployments-registry-data) of differential privacy deployments. Read it "
        "through before you hand it in."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        content = release.content
        return (
            [release.destination.write_bytes("deployment.yaml", yaml_document(_deployment(content)))]
            if content.about
            else []
        )


DEPLOYMENT = Deployment()


def _deployment(content: ReleaseContent) -> dict[str, Any]:
    """A record for the public registry of deployments (OpenDP), tier 3, to be looked through before it is handed in."""
    about, certificate = content.about, content.certificate
    basic = {
        "name": content.title,
        "data_curators": [about["curator"]],
        "intended_use": about["intended_use"],
        "data_product_type": "Summary statistics",
        "data_product_region": about["region"],
        "description": about["description"],
        "publication_date": about["published"],
        **({"data_product_sector": about["sector"]} if about.get("sector") else {}),
    }
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", content.release.lower()).strip("_"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic,
            **_guarantee(content),
            "deployment_model": _model(content),
            "accounting": _accounting(certificate),
            "implementation": _implementation(certificate),
            "administrative": {
                **({"sources": about["address"]} if about.get("address") else {}),
                "registry_authors": list(about.get("authors") or (about["curator"],)),
            },
        },
    }


def _guarantee(content: ReleaseContent) -> dict[str, Any]:
    """The registry's sections on the definition of privacy and on the loss."""
    certificate, privacy = content.certificate, content.certificate["privacy"]
    laplace, selects = privacy["noise"] == "Laplace", "selections" in certificate
    variant = "Approximate DP" if selects else "Pure DP" if laplace else "Zero-concentrated DP"
    parameters = {"epsilon": privacy["epsilon"]} | ({"delta": privacy["delta"]} if selects or not laplace else {})
    parameters |= {} if laplace else {"rho": privacy["rho_decimal"]}
    attributes = "; ".join(f"{name}: {facts['values']}" for name, facts in certificate["method"]["attributes"].items())
    public_counts = next((text for text in certificate["post_processing"] if text.startswith("public counts")), None)
    unprotected_text = (
        f"The declared attributes and queries; {public_counts}."
        if public_counts
        else "None but the declared attributes and queries."
    )
    return {
        "dp_variant": {
            "variant_name": variant,
            "data_domain": f"Multisets of {certificate['method']['counted']} with the declared attributes {attributes}.",
            "unprotected_quantities": unprotected_text,
        },
        "privacy_loss": {
            "privacy_unit": privacy["unit"],
            "privacy_unit_details": f"{privacy['one_change']} {privacy['bound']}",
            "privacy_parameters": parameters,
            "privacy_parameters_details": f"Of this release alone: {guarantee_in_numbers(content)}. {privacy['meaning']['guess']}",
        },
    }


def _model(content: ReleaseContent) -> dict[str, str]:
    """The registry's section on who holds what, and how readers get answers."""
    certificate = content.certificate
    has_many_releases = certificate["stream"] is not None or (certificate["budget"] or {}).get("period", "total") != "total"
    question_note = " Further questions are answered from the published noisy measurement." if content.measurement else ""
    return {
        "model_name": "Central",
        "model_name_details": "The curator holds the records and adds the noise before anything is published.",
        "actors": "The curator, who sees the records; readers of the published files, who may know all other records and combine "
        "everything that is published. Who holds root key, ledger and store before the commit is trusted.",
        "release_type": "Many releases" if has_many_releases else "One release",
        "release_type_details": f"All releases are charged to one ledger with the cap {certificate['method']['cap']}.",
        "data_source_type": "Dynamic" if has_many_releases else "Static",
        "data_source_type_details": "New records arrive with every period."
        if has_many_releases
        else "The release is of one collection of records.",
        "access_type": "Non-interactive",
        "access_type_details": f"Readers get files.{question_note}",
    }


def _accounting(certificate: dict[str, Any]) -> dict[str, str]:
    """The registry's section on what adds up."""
    measured = (
        "A part of the budget chooses what is measured, the rest measures it."
        if mechanism_of(certificate["mechanism"]["name"]).is_data_dependent
        else "One vector is measured with noise for its joint sensitivity."
    )
    return {
        "post_processing": "; ".join(certificate["post_processing"])
        or "Answers are computed from the noisy measurement, and nothing else was done to them.",
        "composition": f"{measured} Releases of the data set add up in zero-concentrated and pure differential privacy under the cap "
        f"{certificate['method']['cap']}.",
    }


def _implementation(certificate: dict[str, Any]) -> dict[str, str]:
    """The registry's section on the mechanism."""
    privacy, mechanism = certificate["privacy"], certificate["mechanism"]
    kind, tuned = (
        ("Mechanism", "what is measured was chosen from the records under a part of the budget")
        if mechanism_of(mechanism["name"]).is_data_dependent
        else ("Matrix mechanism", "the strategy was chosen from the queries alone")
    )
    return {
        "preprocessing_and_hyperparameter_tuning": f"{_declaration_text(certificate)}; {tuned}.",
        "mechanisms": f"{kind} '{mechanism['name']}' with exact discrete {privacy['noise']} noise on an integer grid, "
        f"dpdist {certificate['versions']['dpdist']}: counts are measured exactly in whole numbers, and the key of the noise is "
        "erased once it is committed.",
        "justification": _justification(mechanism),
    }


def _declaration_text(certificate: dict[str, Any]) -> str:
    """Where the attributes' values come from."""
    names = certificate.get("selections", ())
    edges = certificate.get("chosen_edges", ())
    noise = certificate["privacy"]["noise"]
    selection_texts = [
        f"the names of {facts['attribute']!r}: {noise} thresholding selected them under rho = {facts['rho']} and delta = "
        f"{facts['delta']:.3g}, which are part of the loss"
        for facts in names
    ]
    selection_texts += [
        f"the bins of {facts['of']!r}: the exponential mechanism chose their edges under rho = {facts['rho']}, which is part of the loss"
        for facts in edges
    ]
    if not selection_texts:
        return "Attributes, queries and budget are declared in the spec, never read from the records"
    return f"Attributes, queries and budget are declared in the spec, but for {'; and '.join(selection_texts)}"


def _justification(mechanism: dict[str, Any]) -> str:
    """Why this mechanism was chosen."""
    gap = mechanism["certified_gap"]
    certified = (
        "" if gap is None else f" Its total squared error is at most {ratio_to_bound(gap)} times that of the best strategy."
    )
    among = len(mechanism["compared"])
    choice_text = f"chosen among {among} by predicted error" if among > 1 else "set by the publisher"
    return f"The mechanism was {choice_text}, before any record was read.{certified}"
