"""Commands that read what is published: answers, questions, pictures and a site."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dpdist.storage.home_folder import release_location, state_folder, store_of
from dpdist.storage.objects import parse_location
from flows.commands import console_output
from flows.commands.console_output import console, shown
from flows.commands.options import Csv, Json, ReleaseName, check_format
from flows.ledger_access import open_local_ledger

if TYPE_CHECKING:
    from dpdist.pipeline.release_audit import Finding


def show(
    release: ReleaseName,
    group: Annotated[str | None, typer.Option(help="print only this group: answers, means, variances or quantiles")] = None,
    limit: Annotated[int, typer.Option(min=0, help="how many answers to print at most; 0 prints all")] = 40,
    below: Annotated[
        float | None,
        typer.Option(
            help="print only answers that lie clearly above this number, and how often this rule is wrong, predicted from the noise"
        ),
    ] = None,
    at: Annotated[float, typer.Option(help="with --below: how many standard errors an answer must lie above it")] = 2.0,
    about: Annotated[
        bool, typer.Option("--about", help="print what the certificate says, too: mechanisms, noise, guarantee, signature")
    ] = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Print the answers of a published release with their error bars. As CSV, all of them; as JSON, with the certificate and means."""
    check_format(as_json=as_json, as_csv=as_csv)
    from dpdist.publish import release_folder

    location = release_location(release)
    with location.local_copy() as folder:
        certificate, key = release_folder.certificate_of(folder), release_folder.verify_signature(parse_location(folder))
        if below is not None:
            console_output.print_clear(folder, below, at, group=group, limit=limit, as_json=as_json, as_csv=as_csv)
            return
        statistics = release_folder.statistics_tables(folder, certificate)
        has_answers = group not in release_folder.statistic_groups(statistics, certificate)
        statistics = {
            kind: [row for row in kind_rows if group in (None, row["group"])] for kind, kind_rows in statistics.items()
        }
        rows, total = (
            release_folder.first_rows(folder, group=group, limit=0 if as_json or as_csv else limit)
            if has_answers
            else ([], 0)
        )
        if as_csv:
            tables = {} if has_answers else release_folder.load_statistics(folder, certificate)
            statistic_rows = [row for table in tables.values() for row in table.to_pylist() if row["group"] == group]
            console_output.print_csv(rows if has_answers else statistic_rows)
            return
        if as_json:
            document = {"certificate": certificate, "signed_by": key, "answers": console_output.in_json(rows)}
            console.print_json(json.dumps({**document, **{kind: rows for kind, rows in statistics.items() if rows}}))
            return
        answers = (
            f" ({shown(location)}): {certificate['queries']:,} answers with {console_output.guarantee_text(certificate)}"
        )
        console.print_line(Text.assemble((certificate["release"], "bold"), answers))
        if about:
            console.print_line(f"signed with the key {key}")
            console_output.print_mechanisms(certificate)
            console_output.print_noises(certificate)
            console_output.print_targets(certificate)
            console_output.print_privacy(certificate)
        if has_answers:
            console_output.print_answers(rows, total)
        console_output.print_statistics(statistics, certificate, limit, group)
        console_output.print_beyond(certificate)
        console_output.print_post_processing(certificate)
        if "suppression" in certificate:
            from dpdist.content.suppression import suppression_sentence

            console.print_line(suppression_sentence(certificate) or "")


def verify(
    release: Annotated[str, typer.Argument(help="the id of a release, the folder or URL of a published one, or 'all'")],
    public: Annotated[
        bool, typer.Option("--public", help="check the published files alone, as anybody can who has no ledger and no store")
    ] = False,
    site: Annotated[Path, typer.Option(help="the folder of a site, whose copies are compared, too")] = Path("site"),
    export: Annotated[
        Path | None,
        typer.Option(
            "--ledger", help="with --public: the publisher's rows, as 'dpdist ledger export' prints them, if there are some"
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="with 'all': the head that an earlier verification of the ledger printed")
    ] = None,
) -> None:
    """Recompute what a release claims: certificate, ledger, store, published files, site and warehouses must agree.

    Nothing is charged. Each line says what was checked, and 'right' or what differs. The exit code is 1 if anything differs.
    """
    from dpdist.pipeline import release_audit

    if public:
        _print_findings(release_audit.verify_public(release_location(release), export))
        return
    with open_local_ledger() as ledger:
        verified = release_audit.Verification(store_of(state_folder()), ledger, site)
        if release == "all":
            _print_findings(chain(release_audit.verify_ledger(ledger, head), verified.verify_all()))
        else:
            _print_findings(verified.verify_release(*release_audit.resolve_release(release)))


def _print_findings(findings: Iterable[Finding]) -> None:
    """Each as it is made. Ends with 1 where something differs."""
    wrong = 0
    for finding in findings:
        wrong += bool(finding.differs)
        console.print_line(
            Text.assemble(finding.checked, ": ", (finding.differs, "bold red") if finding.differs else finding.success_text)
        )
    if wrong:
        raise typer.Exit(1)
