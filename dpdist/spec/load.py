"""Specs as they are read: YAML, dictionaries, one period of many; every error names its line and a cure."""

from __future__ import annotations

import datetime
import json
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpdist.errors import InvalidSpec
from dpdist.process import yaml_text
from dpdist.process.path_encoding import encodes
from dpdist.process.yaml_text import Lines, Place
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.compile import compile_job
from dpdist.spec.consistency_checks import check
from dpdist.spec.error_messages import describe_line, explain_errors, report_line, shorten
from dpdist.spec.job import Job
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.record_assumptions import AssumptionSection, RecordAssumptions
from dpdist.spec.sections.sources import LOCATIONS


def load(
    source: Job | ReleaseSpec | dict[str, Any] | str | Path,
    *,
    period: datetime.date | None = None,
    follow: bool = True,
    records: bool = True,
    folder: Path | None = None,
    files: Path | None = None,
    sizes: Sizes = SIZES,
) -> Job:
    """The job of a spec, checked: of a YAML file, a dictionary, a spec, or a job as it is.

    Args:
        period: the day that the release stands for: it takes the place of ``{period}`` wherever the spec says so, and is part of
            the release's id in any case.
        follow: check the specs under ``consistent_with``, too.
        records: whether the spec must say where its records are.
        folder: at which relative paths start. Default: that of the file, or the current one of a dictionary.
        files: where the files lie that a spec names beside its records. Default: in the same folder.
        sizes: from which other paths are taken.
    Raises: InvalidSpec naming file, line, what was found and what to do.
    """
    if isinstance(source, Job):
        if records:
            report_line(source.source.records.location.check, ("records",), {}, "spec")
        return source
    if isinstance(source, ReleaseSpec):
        return _check_spec(source, {}, "spec", Path.cwd(), files, follow=follow, records=records, sizes=sizes)
    return _check_spec(*_read_spec(source, period, folder), files, follow=follow, records=records, sizes=sizes)


def assumed(
    source: dict[str, Any] | str | Path, *, period: datetime.date | None = None, folder: Path | None = None
) -> RecordAssumptions | None:
    """What a spec assumes of its records, with what it would be with other bounds; None where it assumes nothing.

    Args:
        source: a path of YAML, or a dictionary.
        period: as for ``load``.
        folder: as for ``load``.
    Raises: InvalidSpec.
    """
    spec, _, _, spec_folder = _read_spec(source, period, folder)
    return spec.assume.assumptions(spec, spec_folder) if isinstance(spec.assume, AssumptionSection) else None


def _read_spec(
    source: dict[str, Any] | str | Path, period: datetime.date | None, folder: Path | None
) -> tuple[ReleaseSpec, Lines, str, Path]:
    """The spec of a period, where its keys stand, what messages call it, and at which folder its paths start. Raises: InvalidSpec."""
    if isinstance(source, dict):
        return _validate(_for_period(source, period, "spec"), {}, "spec"), {}, "spec", folder or Path.cwd()
    if not isinstance(source, str | Path):
        raise InvalidSpec(f"a spec is a path, a dictionary or a ReleaseSpec, found {type(source).__name__}")
    path, name = Path(source), str(Path(source))
    content, line_numbers = _mapping(path)
    return (
        _validate(_for_period(content, period, name), line_numbers, name),
        line_numbers,
        name,
        folder or path.resolve().parent,
    )


def _mapping(path: Path) -> tuple[dict[str, Any], Lines]:
    content, line_numbers = yaml_text.read(path)
    if not isinstance(content, dict):
        raise InvalidSpec(f"{path}: a release spec is a mapping of keys, found {shorten(content)}; write 'key: value' lines")
    return content, line_numbers


def check_many_periods(path: Path) -> None:
    """Refuse a spec that reads the same records in every period: each release of them would be charged anew.

    Raises: InvalidSpec.
    """
    content, line_numbers = _mapping(path)
    records = content.get("records")
    location_keys = [name for name in LOCATIONS.kinds if isinstance(records, dict) and name in records]
    if isinstance(records, dict) and not any(PERIOD in str(records[name]) for name in location_keys):
        line_text = describe_line(("records", *location_keys[:1]), line_numbers, str(path))
        raise InvalidSpec(
            f"{line_text}: every period would read and charge the same records; name each period's file with {PERIOD}, "
            f"for example 'path: records-{PERIOD}.parquet'"
        )


def _for_period(content: dict[str, Any], period: datetime.date | None, name: str) -> dict[str, Any]:
    """The spec of one period. Raises: InvalidSpec when a period is missing, or fixed to another one."""
    if period is None:
        if PERIOD in json.dumps(content, default=str):
            raise InvalidSpec(f"{name}: the spec is for many periods ({PERIOD}); say which: --period YYYY-MM-DD")
        return content
    day = period.isoformat()
    if str(content.get("period", day)) not in (day, PERIOD):
        raise InvalidSpec(
            f"{name}: the spec is for the period {content['period']}, asked for {day}; write 'period: \"{PERIOD}\"'"
        )
    filled = _fill_period(content, day)
    release = str(content.get("release", ""))
    return {**filled, "period": day, "release": filled["release"] if PERIOD in release else f"{release}-{day}"}


PERIOD = "{period}"
"""Stands for the day of a release in specs of periodic ones."""


def _fill_period(item: Any, day: str) -> Any:
    if isinstance(item, dict):
        return {key: _fill_period(value, day) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_fill_period(value, day) for value in item]
    return item.replace(PERIOD, day) if isinstance(item, str) else item


def _check_text(item: Any, key_path: Place, line_numbers: Lines, name: str) -> None:
    r"""Refuse halves of characters, which YAML writes as "\uD800", names of files that are not UTF-8, and NUL. Raises: InvalidSpec."""
    if isinstance(item, dict):
        for key, value in item.items():
            _check_text(str(key), (*key_path, key), line_numbers, name)
            _check_text(value, (*key_path, key), line_numbers, name)
    elif isinstance(item, list | tuple):
        for number, value in enumerate(item):
            _check_text(value, (*key_path, number), line_numbers, name)
    elif isinstance(item, str) and (not encodes(item) or "\0" in item):  # no database and no page keeps a NUL
        needed = "that is UTF-8" if not encodes(item) else "without a NUL character"
        raise InvalidSpec(f"{describe_line(key_path, line_numbers, name)}: text {needed} is needed (found {shorten(item)})")


def _validate(content: dict[str, Any], line_numbers: Lines, name: str) -> ReleaseSpec:
    _check_text(content, (), line_numbers, name)
    try:
        return ReleaseSpec.model_validate(content)
    except ValidationError as error:
        raise InvalidSpec(explain_errors(error, content, line_numbers, name)) from None


def _check_spec(
    spec: ReleaseSpec,
    line_numbers: Lines,
    name: str,
    folder: Path,
    files: Path | None,
    *,
    follow: bool,
    records: bool,
    sizes: Sizes,
) -> Job:
    if not encodes(str(folder)):
        raise InvalidSpec(f"{name}: its folder {folder} has a name that is not UTF-8; rename it")

    def companions() -> tuple[Job, ...]:
        companion_paths = spec.postprocess.consistent_with if follow else ()
        apart = [(path, None if files is None else (files / path).parent) for path in companion_paths]
        return tuple(
            load(
                (files or folder) / path, follow=False, folder=(folder / path).parent, files=own, sizes=sizes
            ).without_extra_steps
            for path, own in apart
        )

    if records:
        report_line(spec.records.location.check, ("records",), line_numbers, name)
    companion_jobs = report_line(companions, ("postprocess", "consistent_with"), line_numbers, name)
    job = report_line(
        partial(compile_job, spec, folder=folder, files=files, sizes=sizes, companions=companion_jobs),
        ("stream", "extended_from"),
        line_numbers,
        name,
    )
    check(job, files or folder, line_numbers, name)
    return job
