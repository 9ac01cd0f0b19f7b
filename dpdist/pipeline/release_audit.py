"""What a release claims, compared with all that this installation knows of it: ledger, store, published files, site, warehouses.

Nothing is charged, drawn or written. Every check is one sentence: what was compared, and what differs.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpdist.content import measurement_file
from dpdist.content.table_rows import unescape_text
from dpdist.errors import DpdistError, StoreError
from dpdist.pipeline.warehouse_delivery import differences, rows_of
from dpdist.planner.certificate import budget_facts
from dpdist.plugin_registry import plugin_objects
from dpdist.privacy import signatures
from dpdist.privacy.ledger import checkpoints
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.privacy.ledger.charges import PRELIMINARIES
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.privacy.ledger.serialization import UNREADABLE
from dpdist.privacy.risk_in_words import describe_loss
from dpdist.publish import release_folder
from dpdist.runtime.reconciliation import check_pair, check_release, integers_of, releases_of
from dpdist.storage.array_store import Store
from dpdist.storage.home_folder import release_location
from dpdist.storage.objects import Folder, StorageLocation, parse_location


@dataclass(frozen=True)
class Finding:
    """What was checked, and what differs; empty where it is right.

    Attributes:
        success_text: what is said where nothing differs.
    """

    checked: str
    differs: str = ""
    success_text: str = "right"

    def __str__(self) -> str:
        return f"{self.checked}: {self.differs or self.success_text}"


def _run_check(checked: str, check: Callable[[], str | None]) -> Finding:
    """What a check finds; one that refuses says what differs."""
    try:
        return Finding(checked, check() or "")
    except DpdistError as error:
        return Finding(checked, str(error))
    except UNREADABLE as error:  # of what a file or a table holds
        return Finding(checked, f"it cannot be read ({type(error).__name__}): dpdist did not write it")


@dataclass(frozen=True)
class Verification:
    """What claims are compared with.

    Attributes:
        site: the folder of a site, if there is one.
    """

    store: Store
    ledger: Ledger
    site: Path

    def verify_all(self) -> Iterator[Finding]:
        """Of all finished releases, and whether ledger and store agree on the others."""
        yield _run_check("ledger and store belong together", lambda: check_pair(self.store, self.ledger))
        committed_releases = self.ledger.committed()
        for release in committed_releases:
            if not release.endswith(PRELIMINARIES):
                yield from self.verify_release(release)
        for release in sorted(set(releases_of(self.store, self.ledger)) - set(committed_releases)):
            yield _run_check(f"{release}, not finished: ledger and store", partial(self._check_store, [release]))

    def verify_release(self, release: str, stated_location: StorageLocation | None = None) -> Iterator[Finding]:
        """What is found of a release, check after check.

        Args:
            stated_location: where it is published, if that is not where the ledger or the environment say.
        """
        receipt = self.ledger.receipt(release)
        if receipt is None or receipt.state != "committed":
            state_text = "not charged" if receipt is None else receipt.state
            yield Finding(f"{release}, ledger", f"it is {state_text}: only a finished release can be verified")
            return
        before = (f"{release}{suffix}" for suffix in PRELIMINARIES)
        charged_releases = [release, *(step_release for step_release in before if self.ledger.receipt(step_release))]
        yield _run_check(f"{release}, every block of its measurement", lambda: self._check_store(charged_releases))
        location = self._find_location(release) if stated_location is None else stated_location
        try:
            with location.local_copy() as folder:
                yield from self._verify_files(receipt, folder, location)
        except StoreError as error:
            yield Finding(f"{release}, published files at {location}", str(error))

    def _check_store(self, releases: Iterable[str]) -> None:
        for release in releases:
            check_release(self.store, self.ledger.receipt(release), release)

    def _find_location(self, release: str) -> StorageLocation:
        """Where releases of this name are looked for, else where the ledger last says that it was published."""
        near, publications = release_location(release), self.ledger.publications(release)
        return (
            near
            if release_folder.published_certificate(near) is not None or not publications
            else parse_location(publications[-1].location)
        )

    def _verify_files(self, receipt: Receipt, folder: Path, location: StorageLocation) -> Iterator[Finding]:
        release = receipt.release
        whole = _run_check(f"{release}, signature and files at {location}", lambda: self._check_files(receipt, folder))
        yield whole
        text = release_folder.published_certificate(parse_location(folder))
        if text is None:
            return
        certificate = release_folder.read_certificate(text, location)
        yield _run_check(
            f"{release}, certificate against the ledger's row", lambda: self._check_claims(certificate, receipt)
        )
        if certificate.get("measurement", {}).get("file"):
            before = 2 + len(certificate["rounds"]) if "rounds" in certificate else 0  # how tables were chosen
            check = partial(self._check_measurement, folder, receipt, before)
            yield _run_check(f"{release}, published measurement against the store", check)
        if not whole.differs:
            yield _merge_findings(f"{release}, claims recomputed from its files", list(recompute_claims(folder)))
        if (self.site / release).is_dir():
            yield _run_check(f"{release}, its copy in {self.site}", lambda: _check_copy(self.site / release, text))
        tables = dict.fromkeys(table for publication in self.ledger.publications(release) for table in publication.tables)
        if tables and not whole.differs:
            with rows_of(location) as rows:
                for table, differs in differences(rows, tables):
                    yield Finding(f"{release}, rows in {table}", differs)

    def _check_files(self, receipt: Receipt, folder: Path) -> str:
        """The signature, every digest, and that the ledger has published this very certificate."""
        certificate = release_folder.certificate_of(folder)
        text = (folder / release_folder.CERTIFICATE).read_bytes()
        key, digest = release_folder.verify_signature(parse_location(folder), text), hashlib.sha256(text).hexdigest()
        if certificate["release"] != receipt.release:
            return f"they are of {certificate['release']!r}"
        if (digest, key) not in {
            (publication.certificate, publication.key) for publication in self.ledger.publications(receipt.release)
        }:
            return f"the ledger has not published this release.json (SHA-256 {digest[:16]}...), signed with the key {key[:16]}..."
        return ""

    def _check_claims(self, certificate: dict[str, Any], receipt: Receipt) -> str:
        """Each field that follows from the ledger's rows and is another one, with both values."""
        mismatches = []
        for name, expected in self._expected(certificate, receipt).items():
            claimed_value: Any = certificate
            for key in name.split("."):
                claimed_value = claimed_value.get(key) if isinstance(claimed_value, dict) else None
            if claimed_value != json.loads(json.dumps(expected)):
                mismatches.append(f"{name} is {_shorten(claimed_value)}, the ledger says {_shorten(expected)}")
        return "; ".join(mismatches)

    def _expected(self, certificate: dict[str, Any], receipt: Receipt) -> dict[str, Any]:
        """What the ledger's rows say of the fields of a certificate."""
        ledger, release, protection = self.ledger, receipt.release, receipt.protection
        step_receipts = [ledger.receipt(f"{release}{suffix}") for suffix in PRELIMINARIES]
        loss = sum((step_receipt.own_loss for step_receipt in step_receipts if step_receipt is not None), receipt.own_loss)
        *_, reserved = (row["facts"] for row in ledger.entries(release) if row["event"] == "reserved")
        delta = float(certificate.get("privacy", {}).get("delta", 0.0))
        measured = {
            other_release: self._measurement_digest(other_release) for other_release in certificate.get("measurements", {})
        }
        return {
            "dataset": receipt.dataset,
            "spec_digest": reserved["asked"],
            "privacy.unit": protection.unit,
            **({"privacy.unit_kind": protection.unit_kind} if "unit_kind" in certificate.get("privacy", {}) else {}),
            "privacy.neighbours": protection.neighbours,
            "privacy.one_change": protection.sentence,
            **{f"privacy.{name}": bound for name, bound in protection.bounds().items()},
            "privacy.bound": _bound_as_written(protection.bound, certificate),
            "privacy.bound_enforced_while_counting": protection.enforced,
            "privacy.rho": str(loss.zcdp),
            "privacy.rho_decimal": float(loss.zcdp),
            "privacy.epsilon": loss.epsilon(delta),
            "privacy.meaning": describe_loss(loss, protection),
            "budget": budget_facts(ledger.budget_after(release), ledger.name()),
            "measurements": {**measured, release: receipt.measurement_digest},
        }

    def _measurement_digest(self, release: str) -> str | None:
        receipt = self.ledger.receipt(release)
        return None if receipt is None else receipt.measurement_digest

    def _check_measurement(self, folder: Path, receipt: Receipt, before: int) -> str:
        digest, published_integers = measurement_file.noisy_integers(folder / measurement_file.FILE)
        if digest != receipt.measurement_digest:
            return f"it names the measurement {digest[:16]}..., the ledger says {str(receipt.measurement_digest)[:16]}..."
        values = integers_of(self.store, self.ledger, receipt).ravel()
        has_same_values = np.array_equal(
            np.sort(published_integers), np.sort(values[before:])
        )  # some are published in another order than they were drawn in
        return "" if has_same_values else "its noisy integers are not those of the store"


OWN_CLAIMS = ("files", "signature")
"""Claims that are checked here, with the keys that the reader names."""


def recompute_claims(folder: Path, export: Path | None = None, *, unchecked: bool = False) -> Iterator[Finding]:
    """Every claim of the published files, recomputed by verifiers, plugins that trust nothing of dpdist.

    Args:
        export: rows of the publisher's ledger, as 'dpdist ledger export' prints them.
        unchecked: whether to list what was not checked, too, and why.
    """
    unchecked_lines: list[str] = []
    verifiers = [*plugin_objects("verifiers")]
    for verify in verifiers:
        claims, more_lines = verify(folder, export)
        unchecked_lines += more_lines
        for claim, result in claims.items():
            if claim not in OWN_CLAIMS and not (claim == "ledger" and export is None):
                yield Finding(claim, result if result.startswith("wrong") else "", result)
    if not verifiers:
        yield Finding(
            "claims that a verifier recomputes", success_text="not checked: install the plugin 'verifier' of dpdist"
        )
    yield _run_check("answers.parquet against answers.csv", lambda: _parquet_against_csv(folder))
    for text in unchecked_lines if unchecked else ():
        yield Finding("not checked", success_text=text)


def _parquet_against_csv(folder: Path) -> str:
    """What differs between the answers in both formats; nothing where only one is published."""
    if not all((folder / name).is_file() for name in ("answers.csv", "answers.parquet")):
        return ""
    table = pq.ParquetFile(folder / "answers.parquet")
    rows = (row for batch in table.iter_batches() for row in batch.to_pylist())
    with (folder / "answers.csv").open(encoding="utf-8", newline="") as file:
        for number, (one, other) in enumerate(itertools.zip_longest(rows, csv.DictReader(file)), start=1):
            if one is None or other is None or list(one) != list(other):
                return f"row {number} stands in one of them alone, or has other columns"
            for name, value in one.items():
                text = other[name]
                same = not text if value is None else float(text or "nan") == value if isinstance(value, float) else None
                if not (f"{value}" == unescape_text(text) if same is None else same):
                    return f"row {number}, column {name!r} differs"
    return ""


def _merge_findings(checked: str, findings: Sequence[Finding]) -> Finding:
    """Many claims in one line."""
    wrong = "; ".join(str(claim_finding) for claim_finding in findings if claim_finding.differs)
    unchecked_claims = [
        claim_finding.checked for claim_finding in findings if not claim_finding.success_text.startswith(("right", "wrong"))
    ]
    return Finding(checked, wrong, f"right (without {', '.join(unchecked_claims)})" if unchecked_claims else "right")


def _check_copy(copy: Path, text: bytes) -> str:
    release_folder.certificate_of(copy)
    if (copy / release_folder.CERTIFICATE).read_bytes() != text:
        return "it is of another release.json than the published one"
    series = copy.parent / "series.json"
    listed = json.loads(series.read_text(encoding="utf-8"))["releases"] if series.exists() else []
    digests = {entry["release"]: entry["certificate"] for entry in listed}
    digest = hashlib.sha256(text).hexdigest()
    return (
        "" if digests.get(copy.name, digest) == digest else f"{series} names another certificate of it: write the site again"
    )


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def resolve_release(text: str) -> tuple[str, StorageLocation | None]:
    """The id of a release that is named by its id, folder or URL; and where it is, if that was said. Raises: StoreError."""
    location = parse_location(text)
    if isinstance(location, Folder) and not location.path_or_url.is_dir():
        return text, None
    return str(
        release_folder.read_certificate(release_folder.published_certificate(location) or b"", location)["release"]
    ), location


def verify_ledger(ledger: Ledger, head: str | None) -> Iterator[Finding]:
    """The ledger's own rules, and the heads that are noted elsewhere."""
    yield _run_check(
        "ledger: hash chain, rules at every row, sums and erased salts", lambda: _discard_result(ledger.verify(head))
    )
    if os.environ.get(checkpoints.HEADS_ENVIRONMENT):
        yield _run_check(
            "heads of its rows that are noted elsewhere", lambda: _discard_result(checkpoints.compare(ledger.checkpoints))
        )


def _discard_result(result: object) -> None:
    """What a check returned that refuses where something differs."""


def verify_public(location: StorageLocation, export: Path | None = None) -> Iterator[Finding]:
    """What a reader finds who has the published files alone: signature and digests, and every claim recomputed."""
    with location.local_copy() as folder:
        has_named_keys = signatures.named_keys()
        key_advice = "which is named to you" if has_named_keys else "compare it with the one that the publisher gives"
        try:
            key = release_folder.verify_signature(parse_location(folder))
        except StoreError as error:
            yield Finding("signature", str(error))
        else:
            yield Finding(f"signature of the key {key} ({key_advice})")
        yield _run_check("digests of all files", lambda: _discard_result(release_folder.certificate_of(folder)))
        yield from recompute_claims(folder, export, unchecked=True)


def _bound_as_written(bound: str, certificate: Mapping[str, Any]) -> str:
    """The sentence of a bound, as version 1.0.0 wrote it where a certificate has it so: that of files, also of other records."""
    earlier = bound.replace("in the order in which they are read", "in the order of files and rows")
    return earlier if certificate.get("privacy", {}).get("bound") == earlier else bound
