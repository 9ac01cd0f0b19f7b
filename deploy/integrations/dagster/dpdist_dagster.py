"""Publish differentially private releases from Dagster. The assets run the command ``dpdist``, which has an environment of its own."""

import json
import subprocess
from pathlib import Path
from typing import Literal

import dagster as dg

PARTITIONS: dict[str, type[dg.TimeWindowPartitionsDefinition]] = {
    "day": dg.DailyPartitionsDefinition,
    "week": dg.WeeklyPartitionsDefinition,
    "month": dg.MonthlyPartitionsDefinition,
}
MOST_RELEASES = 1000
"""The newest materialisations whose releases the check verifies."""


class DpdistRelease(dg.Component, dg.Model, dg.Resolvable):
    """An asset whose partitions are the releases of a data set, with a check that recomputes what they claim.

    A partition that is materialised again publishes the same bytes and is charged nothing more, because the release's id holds the period.

    Attributes:
        asset: its name.
        spec: the path of the release spec, from the folder of ``defs.yaml``. The command runs in the spec's folder.
        every: how long the periods are; None for a spec without ``{period}``.
        start: the first day of the first period, YYYY-MM-DD. Periods of weeks begin on Mondays.
        command: the program, with its path where it is not on Dagster's.
    """

    asset: str
    spec: str
    every: Literal["day", "week", "month"] | None = None
    start: str | None = None
    command: str = "dpdist"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset and its check, with the spec in the component's folder."""
        return self.definitions(context.path)

    def definitions(self, folder: Path) -> dg.Definitions:
        """The asset and its check, with the spec in a folder."""
        spec = (folder / self.spec).absolute()

        @dg.asset(name=self.asset, partitions_def=self._partitions(), kinds={"dpdist"})
        def released(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            """Differentially private answers, published once and charged once."""
            day = ["--period", context.partition_key] if self.every else []
            ended = self._ran(spec.parent, "run", str(spec), *day, "--json", "--quiet")
            if ended.returncode != 0:
                said = ended.stderr.strip().splitlines()  # one line; it quotes no record
                raise dg.Failure(
                    said[-1] if said else f"dpdist ended with exit code {ended.returncode}; run it again to go on"
                )
            done = json.loads(ended.stdout)
            certificate, privacy = done["certificate"], done["certificate"]["privacy"]
            return dg.MaterializeResult(
                metadata={
                    "release": certificate["release"],
                    "folder": done["folder"],
                    "RMSE": certificate["mechanism"]["rmse"],
                    "epsilon": privacy["epsilon"],
                    "delta": privacy["delta"],
                    "queries": certificate["queries"],
                    "charged": done["charged"],
                }
            )

        @dg.asset_check(asset=released, name="verified", description="recompute what every release so far claims")
        def verified(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            events = context.instance.fetch_materializations(released.key, limit=MOST_RELEASES).records
            releases = sorted({str(each.asset_materialization.metadata["release"].value) for each in events})
            found = {each: self._ran(spec.parent, "verify", each) for each in releases}
            wrong = {each: (done.stdout + done.stderr).strip() for each, done in found.items() if done.returncode != 0}
            return dg.AssetCheckResult(passed=not wrong, metadata={"releases": len(releases), "wrong": wrong})

        return dg.Definitions(assets=[released], asset_checks=[verified])

    def _partitions(self) -> dg.PartitionsDefinition | None:
        if self.every is None:
            return None
        if self.start is None:
            raise ValueError("'every' needs 'start', the first day of the first period, such as 2026-11-02")
        return PARTITIONS[self.every](start_date=self.start, **({"day_offset": 1} if self.every == "week" else {}))

    def _ran(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.command, *words], cwd=folder, capture_output=True, text=True, check=False)
