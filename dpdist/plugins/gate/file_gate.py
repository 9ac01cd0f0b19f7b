"""The files of a release beside those of earlier periods: a gap in them stops the release before anything of it is charged.

Only their number and the times at which they were written are looked at, which the operator declares public by publishing a series of
them; never a size, a name or a byte of what they hold. What earlier periods had stands in the state folder, which is the operator's alone.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from dpdist.api.gates import Context, Job, Missing, charged_ids, file_at, meaning_digest
from dpdist.api.holds import private_file, private_folder, rename
from dpdist.api.sources import File, map_in_order, read_table_files
from dpdist.plugins.gate.gate_section import gate_of
from dpdist.plugins.gate.held_releases import HeldRelease

FOLDER = "gate"
LEAST_PERIODS = 3
"""So many earlier periods must be known: fewer do not say what is usual."""
MOST_PERIODS = 12
"""So many are compared, the last ones."""
HOUR = 3600.0
"""So much earlier or later than in all earlier periods is unusual, if those differ by less."""


@dataclass(frozen=True)
class PeriodFiles:
    """The files of a period.

    Attributes:
        oldest, newest: when the first and the last of them was written, in seconds after the period begins.
    """

    files: int
    oldest: float | None
    newest: float | None


def check_files(context: Context, job: Job) -> None:
    """Hold a release back whose files have a gap, before it is charged. Raises: ReleaseHeld."""
    if job.guarantee.period is None or gate_of(job).action == "none":
        return
    receipts = [context.ledger.receipt(charge_id) for charge_id in charged_ids(job.declared_job)]
    if any(receipt is not None and receipt.state != "aborted" for receipt in receipts):
        return  # it was charged for the files that it has
    held = HeldRelease.from_job(context.home, job)
    held.check_not_void()
    files = _read_files(job)
    if files is None:
        return
    gaps = find_gaps(files, SeriesFiles.from_job(context.home, job).periods, job.guarantee.period)
    if gaps:
        held.hold_back(gaps, "and nothing was charged", "Wait until its files are complete and run again, or look at them")


def record_files(context: Context, job: Job) -> None:
    """Write down what files a period had that is published."""
    files = _read_files(job)
    if files is not None and job.guarantee.period is not None:
        SeriesFiles.from_job(context.home, job).write(job.guarantee.period, files)


def find_gaps(files: PeriodFiles, periods: Mapping[datetime.date, PeriodFiles], day: datetime.date) -> list[str]:
    """What is unusual about the files of a period: a sentence for each thing.

    A number is unusual if it is below that of every earlier period, and either at most half of their median or further below than they
    differ among themselves. A time is unusual if it lies by an hour or more outside all earlier ones, and by as much as these differ.
    Times are compared where files come with their periods, and not where those of many past periods were written together.

    Args:
        periods: the files of published periods.
    """
    earlier_days = [known_day for known_day in sorted(periods) if known_day < day][-MOST_PERIODS:]
    earlier = [periods[known_day] for known_day in earlier_days]
    if len(earlier) < LEAST_PERIODS:
        return []
    numbers, gaps = [known.files for known in earlier], []
    fewest, most = min(numbers), max(numbers)
    if files.files < fewest and (2 * files.files <= median(numbers) or files.files < fewest - (most - fewest)):
        usual = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        noun = "file" if files.files == 1 else "files"
        gaps.append(
            f"its records are in {files.files:,} {noun}, where {_count_of(earlier)} had {usual}, so that some seem to be missing"
        )
    if not _come_with_their_periods(earlier_days, earlier):
        return gaps
    oldest, newest = ([getattr(known, name) for known in earlier] for name in ("oldest", "newest"))
    if (
        files.oldest is not None
        and None not in oldest
        and files.oldest <= min(oldest) - max(HOUR, max(oldest) - min(oldest))
    ):
        early = _duration(min(oldest) - files.oldest)
        gaps.append(
            f"a file of its records was written {early} earlier after the begin of the period than in {_count_of(earlier)}, so that it "
            "seems to be old or incomplete"
        )
    if day in periods:  # a corrected edition of a period comes late
        return gaps
    if (
        files.newest is not None
        and None not in newest
        and files.newest >= max(newest) + max(HOUR, max(newest) - min(newest))
    ):
        late = _duration(files.newest - max(newest))
        gaps.append(
            f"a file of its records was written {late} later after the begin of the period than in {_count_of(earlier)}, so that it may "
            "still change"
        )
    return gaps


def _come_with_their_periods(days: Sequence[datetime.date], files: Sequence[PeriodFiles]) -> bool:
    """Whether the last files of the periods were written about as far from each other as the periods are."""
    begins = [86400.0 * day.toordinal() for day in days]
    written = [begin + known.newest for begin, known in zip(begins, files, strict=True) if known.newest is not None]
    return len(written) == len(days) and 2 * (max(written) - min(written)) >= max(begins) - min(begins)


def _count_of(earlier: list[PeriodFiles]) -> str:
    return f"the last {len(earlier)} published periods"


def _duration(seconds: float) -> str:
    if seconds < 2 * 86400:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // 60:.0f} min"
    return f"{seconds / 86400:.0f} days"


def _read_files(job: Job) -> PeriodFiles | None:
    """The number of the files of a release and their times; None for records of a query, which have neither."""
    source = job.declared_job.source
    if source.table is not None:
        table_files = read_table_files(source.table)
        moments = None if table_files is None else (table_files.files, [table_files.written_at])
    else:
        files = source.listed_files
        try:
            moments = len(files), list(map_in_order(_written_at, files))
        except Missing:  # a folder that is one array has no time of its own in an object store
            moments = len(files), []
    if moments is None or job.guarantee.period is None:
        return None
    number, written = moments
    begin = datetime.datetime.combine(job.guarantee.period, datetime.time(), datetime.UTC).timestamp()
    return PeriodFiles(number, *((end(written) - begin if written else None) for end in (min, max)))


def _written_at(file: File) -> float:
    return file_at(file.path, file.source_label).written_at()


@dataclass(frozen=True)
class SeriesFiles:
    """What files the published periods of a series had: a document of the state folder."""

    path: Path

    @staticmethod
    def from_job(home: Path, job: Job) -> SeriesFiles:
        """That of the series of a release: the same data set, counted in the same way, of places whose names differ in digits."""
        source = job.declared_job.source
        place = source.path if source.table is None else source.table.identity
        facts = [job.guarantee.dataset, meaning_digest(job.declared_job), re.sub(r"\d+", "0", place)]
        return SeriesFiles(home / FOLDER / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}.json")

    @property
    def periods(self) -> dict[datetime.date, PeriodFiles]:
        """The files of each published period."""
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # nothing, or what a power loss broke: the series is known from its next periods
            return {}
        return {datetime.date.fromisoformat(day): PeriodFiles(**files) for day, files in known.items()}

    def write(self, day: datetime.date, files: PeriodFiles) -> None:
        """Add the files of a period; those of periods long before it are forgotten."""
        periods = self.periods | {day: files}
        known = {period.isoformat(): asdict(periods[period]) for period in sorted(periods)[-4 * MOST_PERIODS :]}
        private_folder(self.path.parent)
        draft = self.path.with_suffix(".new")
        private_file(draft)
        draft.write_text(json.dumps(known), encoding="utf-8")
        rename(draft, self.path)
