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


class DpdistRelease(dg.Component, dg.Model, dg.Resolvable):
    """An asset whose partitions are the releases of a data set, with a check that recomputes what each of them claims.

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
        """The asset and its check."""
        return dg.Definitions(assets=[self.definition(context.path)])

    def definition(self, folder: Path) -> dg.AssetsDefinition:
        """The asset, for ``dg.Definitions(assets=[...])``, with the spec in a folder."""
        check = dg.AssetCheckSpec(
            "verified", asset=self.asset, description="dpdist verify recomputes what the release claims"
        )

        @dg.asset(name=self.asset, partitions_def=self._partitions(), check_specs=[check], kinds={"dpdist"})
        def released(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            """Differentially private answers, published once and charged once."""
            day = ["--period", context.partition_key] if self.every else []
            spec = (folder / self.spec).absolute()
            done = json.loads(self._ran(spec.parent, "run", str(spec), *day, "--json", "--quiet").stdout)
            certificate, privacy = done["certificate"], done["certificate"]["privacy"]
            facts = {
                "release": certificate["release"],
                "folder": done["folder"],
                "RMSE": certificate["mechanism"]["rmse"],
                "epsilon": privacy["epsilon"],
                "delta": privacy["delta"],
                "queries": certificate["queries"],
                "charged": done["charged"],
            }
            found = self._ran(spec.parent, "verify", certificate["release"], allowed=(0, 1))
            said = (found.stdout or found.stderr).strip().splitlines()
            verified = dg.AssetCheckResult(
                check_name="verified", passed=found.returncode == 0, metadata={"found": "\n".join(said)}
            )
            return dg.MaterializeResult(metadata=facts, check_results=[verified])

        return released

    def _partitions(self) -> dg.PartitionsDefinition | None:
        if self.every is None:
            return None
        if self.start is None:
            raise ValueError("'every' needs 'start', the first day of the first period, such as 2026-11-02")
        return PARTITIONS[self.every](start_date=self.start, **({"day_offset": 1} if self.every == "week" else {}))

    def _ran(self, folder: Path, *words: str, allowed: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """The command, in a folder. Raises: dagster.Failure with the one line that it prints, which quotes no record."""
        done = subprocess.run([self.command, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode not in allowed:
            line = next(iter(done.stderr.strip().splitlines()[-1:]), "")
            raise dg.Failure(
                line or f"dpdist ended with exit code {done.returncode}; run it again to go on where it stopped"
            )
        return done
