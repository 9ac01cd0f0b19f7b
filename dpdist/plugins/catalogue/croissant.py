"""Metadata for data set catalogues: Croissant 1.0 (https://docs.mlcommons.org/croissant)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpdist.api.outputs import Output, ReleaseContent, ReleaseDraft, WrittenFile, columns_of_answers, description, json_text

CROISSANT = "http://mlcommons.org/croissant/"
_CROISSANT_TERMS = """column data dataType equivalentProperty examples extract field fileProperty fileObject fileSet format includes
isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated
replace samplingRate separator source subField transform"""
_TERM_TYPES = {"data": "@json", "examples": "@json", "dataType": "@vocab"}
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": CROISSANT,
    "dct": "http://purl.org/dc/terms/",
    "rai": f"{CROISSANT}RAI/",
    "conformsTo": "dct:conformsTo",
    "citeAs": "cr:citeAs",
    **{
        name: {"@id": f"cr:{name}", "@type": _TERM_TYPES[name]} if name in _TERM_TYPES else f"cr:{name}"
        for name in _CROISSANT_TERMS.split()
    },
}


class Croissant(Output):
    """Metadata of the answers for catalogues."""

    files = r"croissant\.json"
    about = (
        "Metadata of the answers for data set catalogues "
        "([Croissant](https://docs.mlcommons.org/croissant/docs/croissant-spec.html) 1.0)."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        text = json_text(_croissant_facts(release.content, release.digests))
        return [release.destination.write_bytes("croissant.json", text)]


METADATA = Croissant()


def _croissant_facts(content: ReleaseContent, digests: dict[str, str]) -> dict[str, Any]:
    """Croissant 1.0 (https://docs.mlcommons.org/croissant): the files, and the columns of the answers."""
    about = content.about
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
        for name, kind, text in columns_of_answers(content)
    ]
    optional_fields = {
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
        "description": description(content),
        "conformsTo": f"{CROISSANT}1.0",
        "version": "1.0.0",  # a release never changes
        "citeAs": f"{about['curator']}: {content.title} ({content.release})"
        if about
        else f"{content.title} ({content.release})",
        **{name: value for name, value in optional_fields.items() if value},
        "distribution": files,
        "recordSet": [answers] if source else [],
    }
