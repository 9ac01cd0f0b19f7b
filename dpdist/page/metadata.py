"""What a release carries for catalogues: Croissant and CSVW metadata, a data dictionary, and from what the publisher says of it a
record for the public registry of deployments and a citation. All of it follows from the certificate and the spec's 'about'.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import yaml

from dpdist.mechanisms.registry import mechanism_of
from dpdist.page.content import Content
from dpdist.page.summary import over_bound
from dpdist.page.tables import column_of

CROISSANT = "http://mlcommons.org/croissant/"
REGISTRY = "https://registry.opendp.org"
_NUMBERS = {
    "answer": "the noisy answer",
    "standard_error": "standard deviation of the noise in the answer",
    "low_95": "lower end of the 95 % interval; empty where none can be given",
    "high_95": "upper end of the 95 % interval; empty where none can be given",
}
_TEXTS = {"group": "the group of queries that the answer belongs to", "query": "the query, as on the page"}


def metadata_files(content: Content, digests: dict[str, str]) -> dict[str, str]:
    """Names and contents of the metadata files of a release.

    Args:
        digests: SHA-256 of the tables that are written, by file.
    """
    columns = _columns(content)
    files = {"croissant.json": _json(_croissant(content, columns, digests)), "dictionary.csv": _dictionary(columns)}
    if "answers.csv" in digests:
        files["answers.csv-metadata.json"] = _json(_csvw(content, columns))
    if content.about is not None:
        files["deployment.yaml"] = yaml.safe_dump(
            _deployment(content, content.about), sort_keys=False, allow_unicode=True, width=10**6
        )
        citation = _citation(content, content.about)
        files["CITATION.cff"] = yaml.safe_dump(citation, sort_keys=False, allow_unicode=True, width=10**6)
    return files


def _columns(content: Content) -> list[tuple[str, str, str]]:
    """Every column of the answers with its type and its meaning."""
    method = content.certificate["method"]
    declared, sums = method["attributes"], method.get("sums", {})
    out = [(name, "string", text) for name, text in _TEXTS.items()]
    for name in content.workload.domain.names:
        facts = declared.get(name, {})
        if name in sums:
            unit = f", in {sums[name]['unit']}" if sums[name]["unit"] else ""
            what = sums[name]["title"] or name
            told = f"'sum' where the answer is a sum of {what}{unit}, 'count' where it is how many records have an amount"
            if content.variances is not None:
                told += (
                    ", 'deviations' where it is a sum of deviations from the middle of the range, 'squares' of their squares; with "
                    "'deviations' of two columns, of their products"
                )
            out.append((column_of(name), "string", f"{told}; empty where records are counted"))
            continue
        unit = f", in {facts['unit']}" if facts.get("unit") else ""
        what = facts.get("title") or f"value or bin of {name!r}"
        out.append(
            (column_of(name), "string", f"{what}{unit}: {facts.get('values', '')}; empty where the query does not name it")
        )
    for attribute in content.workload.domain.attributes:
        grouped = f"of {attribute.name!r}; empty where the query does not name it"
        out += [(column_of(level.name), "string", f"group of level {level.name!r} {grouped}") for level in attribute.levels]
    return [*out, *((name, "number", text) for name, text in _NUMBERS.items())]


def _description(content: Content) -> str:
    about = content.about or {}
    privacy = content.certificate["privacy"]
    noisy = (
        f"Counts of {content.certificate['method']['counted']} with {privacy['noise']} noise: {privacy['definition']} for "
        f"{privacy['unit']}, {_parameters(content)}. Every answer has a standard error; release.json is its certificate."
    )
    return f"{about['description']} {noisy}" if about else noisy


def _parameters(content: Content) -> str:
    privacy = content.certificate["privacy"]
    delta = f" at delta = {privacy['delta']:.3g}" if privacy["delta"] else ""
    return f"rho = {privacy['rho_decimal']:.6g}, epsilon = {privacy['epsilon']:.6g}{delta}"


def _croissant(content: Content, columns: list[tuple[str, str, str]], digests: dict[str, str]) -> dict[str, Any]:
    """Croissant 1.0 (https://docs.mlcommons.org/croissant): the files, and the columns of the answers."""
    about = content.about or {}
    kinds = {"answers.csv": "text/csv", "answers.parquet": "application/vnd.apache.parquet"}
    files = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "encodingFormat": kind,
            "sha256": digests[name],
        }
        for name, kind in kinds.items()
        if name in digests
    ]
    source = files[0]["@id"] if files else None
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"answers/{name}",
            "name": name,
            "description": text,
            "dataType": "sc:Text" if kind == "string" else "sc:Float",
            "source": {"fileObject": {"@id": source}, "extract": {"column": name}},
        }
        for name, kind, text in columns
    ]
    given = {
        "license": about.get("license"),
        "url": about.get("address"),
        "datePublished": about.get("published"),
        "creator": {"@type": "sc:Organization", "name": about["curator"]} if about else None,
    }
    answers = {
        "@type": "cr:RecordSet",
        "@id": "answers",
        "name": "answers",
        "description": "one row a query" if content.suppression is None else "one row a query, but for suppressed answers",
        "field": fields,
    }
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": content.release,
        "description": _description(content),
        "conformsTo": f"{CROISSANT}1.0",
        "version": "1.0.0",  # a release never changes
        "citeAs": f"{about['curator']}: {content.title} ({content.release})"
        if about
        else f"{content.title} ({content.release})",
        **{name: value for name, value in given.items() if value},
        "distribution": files,
        "recordSet": [answers] if source else [],
    }


_OWN = """column data dataType equivalentProperty examples extract field fileProperty fileObject fileSet format includes isLiveDataset
jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source subField transform"""
_TYPED = {"data": "@json", "examples": "@json", "dataType": "@vocab"}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": CROISSANT,
    "dct": "http://purl.org/dc/terms/",
    "rai": f"{CROISSANT}RAI/",
    "conformsTo": "dct:conformsTo",
    "citeAs": "cr:citeAs",
    **{name: {"@id": f"cr:{name}", "@type": _TYPED[name]} if name in _TYPED else f"cr:{name}" for name in _OWN.split()},
}


def _csvw(content: Content, columns: list[tuple[str, str, str]]) -> dict[str, Any]:
    """CSV on the Web (https://www.w3.org/TR/tabular-metadata): the columns of ``answers.csv``."""
    return {
        "@context": "http://www.w3.org/ns/csvw",
        "url": "answers.csv",
        "dc:title": content.title,
        "dc:description": _description(content),
        "tableSchema": {
            "columns": [
                {
                    "name": f"c{place}_{re.sub(r'[^A-Za-z0-9]', '_', name)}",
                    "titles": name,
                    "dc:description": text,
                    "datatype": kind,
                }
                for place, (name, kind, text) in enumerate(columns)
            ]
        },
    }


def _dictionary(columns: list[tuple[str, str, str]]) -> str:
    """The data dictionary: one row a column."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("column", "type", "meaning"), *map(_without_formula, columns)])
    return out.getvalue()


def _without_formula(row: tuple[str, str, str]) -> tuple[str, ...]:
    """Texts that spreadsheets would run get an apostrophe, as in the answers."""
    return tuple(f"'{text}" if re.match(r"'*[=+\-@\t\r]", text) else text for text in row)


def _deployment(content: Content, about: dict[str, Any]) -> dict[str, Any]:
    """A record for the public registry of deployments (OpenDP), tier 3, to be looked through before it is handed in."""
    certificate = content.certificate
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


def _guarantee(content: Content) -> dict[str, Any]:
    """The registry's sections on the definition of privacy and on the loss."""
    certificate, privacy = content.certificate, content.certificate["privacy"]
    pure = privacy["noise"] == "Laplace"
    variant = "Zero-concentrated DP" if certificate.get("selection") is None else "Approximate DP"
    parameters = {"epsilon": privacy["epsilon"]} | (
        {} if pure else {"delta": privacy["delta"], "rho": privacy["rho_decimal"]}
    )
    attributes = "; ".join(f"{name}: {facts['values']}" for name, facts in certificate["method"]["attributes"].items())
    return {
        "dp_variant": {
            "variant_name": "Pure DP" if pure else variant,
            "data_domain": f"Multisets of {certificate['method']['counted']} with the declared attributes {attributes}.",
            "unprotected_quantities": _unprotected(certificate),
        },
        "privacy_loss": {
            "privacy_unit": privacy["unit"],
            "privacy_unit_details": f"{privacy['one_change']} {privacy['bound']}",
            "privacy_parameters": parameters,
            "privacy_parameters_details": f"Of this release alone: {_parameters(content)}. {privacy['meaning']['guess']}",
        },
    }


def _model(content: Content) -> dict[str, str]:
    """The registry's section on who holds what, and how readers get answers."""
    certificate = content.certificate
    many = certificate["stream"] is not None or (certificate["budget"] or {}).get("period", "total") != "total"
    further = " Further questions are answered from the published noisy measurement." if content.measurement else ""
    return {
        "model_name": "Central",
        "model_name_details": "The curator holds the records and adds the noise before anything is published.",
        "actors": "The curator, who sees the records; readers of the published files, who may know all other records and combine "
        "everything that is published. Who holds root key, ledger and store before the commit is trusted.",
        "release_type": "Many releases" if many else "One release",
        "release_type_details": f"All releases are charged to one ledger with the cap {certificate['method']['cap']}.",
        "data_source_type": "Dynamic" if many else "Static",
        "data_source_type_details": "New records arrive with every period."
        if many
        else "The release is of one collection of records.",
        "access_type": "Non-interactive",
        "access_type_details": f"Readers get files.{further}",
    }


def _accounting(certificate: dict[str, Any]) -> dict[str, str]:
    """The registry's section on what adds up."""
    measured = (
        "A part of the budget chooses which cells are measured together, the rest measures their totals."
        if mechanism_of(certificate["mechanism"]["name"]).adaptive
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
        ("Mechanism", "which cells are measured together was chosen from the records under a part of the budget")
        if mechanism_of(mechanism["name"]).adaptive
        else ("Matrix mechanism", "the strategy was chosen from the queries alone")
    )
    return {
        "preprocessing_and_hyperparameter_tuning": f"{_declared(certificate)}; {tuned}.",
        "mechanisms": f"{kind} '{mechanism['name']}' with exact discrete {privacy['noise']} noise on an integer grid, "
        f"dpdist {certificate['versions']['dpdist']}: counts are measured exactly in whole numbers, and the key of the noise is "
        "erased once it is committed.",
        "justification": _justification(mechanism),
    }


def _declared(certificate: dict[str, Any]) -> str:
    """Where the attributes' values come from."""
    selection = certificate.get("selection")
    if selection is None:
        return "Attributes, queries and budget are declared in the spec, never read from the records"
    return (
        f"Attributes, queries and budget are declared in the spec, but for the names of {selection['attribute']!r}: Gaussian thresholding "
        f"selected them under rho = {selection['rho']} and delta = {selection['delta']:.3g}, which are part of the loss"
    )


def _justification(mechanism: dict[str, Any]) -> str:
    """Why this mechanism was chosen."""
    gap = mechanism["certified_gap"]
    certified = (
        "" if gap is None else f" Its total squared error is at most {over_bound(gap)} times that of the best strategy."
    )
    among = len(mechanism["compared"])
    chosen = f"chosen among {among} by predicted error" if among > 1 else "set by the publisher"
    return f"The mechanism was {chosen}, before any record was read.{certified}"


def _unprotected(certificate: dict[str, Any]) -> str:
    """Quantities that are published without noise."""
    known = next((text for text in certificate["post_processing"] if text.startswith("public counts")), None)
    return f"The declared attributes and queries; {known}." if known else "None but the declared attributes and queries."


def _citation(content: Content, about: dict[str, Any]) -> dict[str, Any]:
    """How to cite the release (Citation File Format 1.2.0)."""
    authors = [{"name": name} for name in about.get("authors") or (about["curator"],)]
    given = {"date-released": about.get("published"), "license": about.get("license"), "url": about.get("address")}
    return {
        "cff-version": "1.2.0",
        "message": "If you use these answers, please cite them with their release id.",
        "type": "dataset",
        "title": content.title,
        "version": content.release,
        "authors": authors,
        **{name: value for name, value in given.items() if value},
        "abstract": about["description"],
    }


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
