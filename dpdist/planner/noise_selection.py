"""Which noise a release takes where its spec leaves the kind open: that of less error at an equal share of the data set's cap.

A data set keeps the kind that it began with. Beside Gaussian releases the ledger counts Laplace noise as the Gaussian that dominates it,
so that both together take more of the cap than either alone, and all periods of a schedule are published with the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.comparison import TIE
from dpdist.planner.certificate import ErrorUnit
from dpdist.planner.measurement_plan import Design
from dpdist.privacy.accounting import NOTHING, Loss
from dpdist.privacy.ledger.budget_ledger import Ledger, Receipt
from dpdist.privacy.ledger.charges import budget_period
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.spec import Job


@dataclass(frozen=True)
class WhichNoise:
    """How one of several kinds of noise is chosen.

    Attributes:
        releases: that are to share the cap.
        begun: the kind that the data set began with, None where this release is its first.
        charged: the kind that this very release was charged with before.
        refused: the kinds that cannot answer the release as it is asked for.
    """

    job: Job
    releases: int
    begun: Kind | None = None
    charged: Kind | None = None
    refused: tuple[Kind, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Those that the spec leaves open."""
        return tuple(Kind.hiding(norm) for norm in self.job.norms)

    @property
    def allowed(self) -> tuple[Kind, ...]:
        """Those that may be chosen: what the data set began with, else those of which the cap holds all releases, if there are any."""
        if self.begun in self.kinds:
            return (self.begun,)
        return tuple(kind for kind in self.kinds if self.room(kind) >= self.releases) or self.kinds

    @property
    def norms(self) -> tuple[Norm, ...]:
        """In the order in which they are planned for: what is allowed, and what this release was charged with before; then the rest."""
        first = [kind for kind in self.kinds if kind in self.allowed or kind == self.charged]
        return tuple(kind.norm for kind in (*first, *(kind for kind in self.kinds if kind not in first)))

    def room(self, kind: Kind) -> int:
        """How many releases like this one the whole cap holds."""
        return self.job.guarantee.cap.room(self._bought(kind))

    def best(self, options: Sequence[Design]) -> Design:
        """The option of least error at an equal share of the cap; of two that tie, the first, which has Gaussian noise."""
        allowed = [each for each in options if each.noise.kind in self.allowed] or list(options)
        errors = [self._at_share(each) for each in allowed]
        return next(each for each, error in zip(allowed, errors, strict=True) if error <= min(errors) * (1 + TIE))

    def is_beaten(self, norm: Norm, planned: Sequence[Design]) -> bool:
        """Whether a kind of noise need not be planned for: what is not allowed where another kind answers the release, and what has, by
        the bound of the others' certificates, more error than they. What may have less error at the release's own budget is planned for
        all the same, and shown."""
        kind = Kind.hiding(norm)
        if kind == self.charged or self._may_be_better(kind, planned):
            return False
        if kind not in self.allowed:
            return bool(planned)
        return any(self._at_least(kind, each, equal_share=True) >= self._at_share(each) for each in planned)

    def _may_be_better(self, kind: Kind, planned: Sequence[Design]) -> bool:
        """Whether a kind of noise of which the cap has room may have less error than Gaussian noise, whatever it leaves of the cap."""
        others = [each for each in planned if each.gap is not None]
        return (
            kind == LAPLACE
            and self.room(kind) > 0
            and any(self._at_least(kind, each, equal_share=False) < each.variance for each in others)
        )

    def facts(self, options: Sequence[Design], chosen: Kind) -> dict[str, Any]:
        """What a certificate says of the kinds of noise, and why one was chosen."""
        rows = [self._row(kind, options, chosen) for kind in self.kinds]
        announced = self.job.guarantee.ledger.cap.releases is not None
        why = {"releases": self.releases, "announced": announced, "why": self._why(options, chosen)}
        return {"noises": rows, "noise_choice": why}

    def _row(self, kind: Kind, options: Sequence[Design], chosen: Kind) -> dict[str, Any]:
        """One kind of noise: predicted errors of this release, what it is charged, and how many like it the whole cap holds.

        A kind that was not planned for has the errors that no strategy can go below where Gaussian noise has a certificate.
        """
        design, cap, unit = _of(kind, options), self.job.guarantee.cap, ErrorUnit.of(self.job)
        loss = self._bought(kind) if design is None else design.loss
        return {
            "noise": kind.label,
            "mechanism": None if design is None else design.strategy.name,
            "rmse": None if design is None else unit.mean(self._rmse(design.variance)),
            "rmse_at_least": None if design is not None else unit.mean(self._bound(kind, options, equal_share=False)),
            "rmse_at_equal_share": None if design is None else unit.mean(self._rmse(self._at_share(design))),
            "worst": None if design is None else unit.largest(design.worst),
            "rho": str(loss.zcdp),
            "rho_decimal": float(loss.zcdp),
            "share_of_cap": float(cap.share(loss)),
            "releases": cap.room(loss),
            "chosen": kind == chosen,
        }

    def _why(self, options: Sequence[Design], chosen: Kind) -> str:
        """Why a kind was chosen, in a sentence without its full stop."""
        other = LAPLACE if chosen == GAUSSIAN else GAUSSIAN
        if chosen == self.begun:
            return f"the data set began with {chosen.label} noise, and keeps it"
        if other in self.refused:
            noise = f"{other.label} noise" if other != self.begun else f"the data set began with {other.label} noise, which"
            return f"{noise} cannot answer this release"
        preferred = self.best(options).noise.kind
        if chosen != preferred:
            return f"the release was charged with {chosen.label} noise before"
        announced = self.job.guarantee.ledger.cap.releases is not None
        sharing = f"{self.releases:,} releases that " + (
            "share the cap" if announced else "the cap holds with Gaussian noise"
        )
        if other not in self.allowed:
            return f"of the {sharing}, it holds {self.room(other):,} with {other.label} noise"
        own, design = _of(chosen, options), _of(other, options)
        error = None if own is None else self._rmse(self._at_share(own))
        beaten = self._bound(other, options, equal_share=True) if design is None else self._rmse(self._at_share(design))
        if error is None or beaten is None:
            return f"no error of {other.label} noise can be predicted"
        least = "at least " if design is None else ""
        return (
            f"at an equal share of the cap for each of {sharing}, the predicted error of {other.label} noise is {least}"
            f"{beaten / error:.4g} times its own"
        )

    def _bought(self, kind: Kind) -> Loss:
        return self.job.guarantee.budget.loss_with(kind.norm)

    def _share(self, kind: Kind) -> float:
        """Rho or epsilon of one of the releases that fill the cap together."""
        cap = self.job.guarantee.cap
        return cap.equal_rho(self.releases) if kind is GAUSSIAN else cap.equal_epsilon(self.releases)

    def _at_share(self, design: Design) -> float:
        """The total squared error of an option at an equal share of the cap."""
        kind, share = design.noise.kind, self._share(design.noise.kind)
        if not share:
            return math.inf
        bought = self._bought(kind)
        factor = float(bought.rho) / share if kind == GAUSSIAN else (float(bought.pure) / share) ** 2
        return design.variance * factor

    def _at_least(self, kind: Kind, other: Design, *, equal_share: bool) -> float:
        """The total squared error that no strategy with a kind of noise can go below, by the certificate of another kind; else 0.

        The L1 sensitivity of a strategy is at least its L2 sensitivity. At sensitivity 1 the variance of Laplace noise is 2 / epsilon^2,
        that of Gaussian noise 1 / (2 rho): so the least error of Laplace noise is at least 4 rho / epsilon^2 times that of Gaussian noise.
        """
        if kind != LAPLACE or other.noise.kind != GAUSSIAN or other.gap is None:
            return 0.0
        epsilon = self._share(LAPLACE) if equal_share else float(self._bought(LAPLACE).pure)
        return other.variance / (1.0 + max(other.gap, 0.0)) * 4.0 * float(self._bought(GAUSSIAN).rho) / epsilon**2

    def _bound(self, kind: Kind, options: Sequence[Design], *, equal_share: bool) -> float | None:
        """``_at_least`` as the root of the mean squared error, None where nothing is known."""
        return (
            self._rmse(max((self._at_least(kind, each, equal_share=equal_share) for each in options), default=0.0)) or None
        )

    def _rmse(self, variance: float) -> float | None:
        queries = self.job.workload.queries.shape[0]
        return math.sqrt(variance / queries) if math.isfinite(variance) else None


def which_noise(ledger: Ledger, job: Job) -> WhichNoise:
    """How a release's kind of noise is chosen: by what the data set began with, else by the spec alone."""
    guarantee, charged = job.guarantee, ledger.receipt(job.release)
    companions = [receipt for other in job.outputs.companions if (receipt := ledger.receipt(other.release)) is not None]
    first = companions[0] if companions else ledger.first(guarantee.dataset)
    begun = None if first is None or first.release == job.release else _kind_of(first)
    releases = guarantee.ledger.cap.releases or max(1, guarantee.cap.room(guarantee.budget.loss_with(job.norms[0])))
    return WhichNoise(job, releases, begun, None if charged is None else _kind_of(charged))


def more_releases(ledger: Ledger, job: Job, options: Sequence[Design]) -> dict[str, int]:
    """How many more releases like this one, after it, each kind of noise leaves room for, by the label of the kind."""
    guarantee, known = job.guarantee, ledger.receipt(job.release)
    period = budget_period(guarantee.cap.per, guarantee.period)
    account = next((each for each in ledger.budgets(guarantee.dataset) if each.period == period), None)
    cap, spent = (guarantee.cap, NOTHING) if account is None else (account.cap, account.spent)
    rule = account.rule if account is not None and account.releases else None
    own = 0 if known is not None and known.state != "aborted" else 1
    found = {}
    for kind in map(Kind.hiding, job.norms):
        design = _of(kind, options)
        loss = guarantee.budget.loss_with(kind.norm) if design is None else design.loss
        found[kind.label] = max(0, cap.room(loss, spent, rule) - own)
    return found


def too_many(job: Job, loss: Loss) -> list[str]:
    """A warning where the cap does not hold as many releases like one as are to share it."""
    announced, cap = job.guarantee.ledger.cap.releases, job.guarantee.cap
    holds = cap.room(loss)
    if announced is None or holds >= announced or loss.nothing:
        return []
    return [
        f"{announced:,} releases are to share the cap ({cap}), which holds {holds:,} like this one: lower 'budget', or 'releases'"
    ]


def _of(kind: Kind, options: Sequence[Design]) -> Design | None:
    return next((each for each in options if each.noise.kind == kind), None)


def _kind_of(receipt: Receipt) -> Kind | None:
    """The kind of noise that a release was charged with, None of a selection that has neither."""
    return GAUSSIAN if receipt.own.rho else LAPLACE if receipt.own.pure else None
