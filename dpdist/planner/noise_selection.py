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
from dpdist.planner.measurement_plan import IntegerPlan
from dpdist.privacy.accounting import NOTHING, Loss
from dpdist.privacy.ledger.budget_ledger import Ledger, Receipt
from dpdist.privacy.ledger.charges import budget_period
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.spec import Job


@dataclass(frozen=True)
class NoiseChoice:
    """How one of several kinds of noise is chosen.

    Attributes:
        releases: that are to share the cap.
        first_kind: the kind that the data set began with, None where this release is its first.
        charged: the kind that this very release was charged with before.
        refused: the kinds that cannot answer the release as it is asked for.
    """

    job: Job
    releases: int
    first_kind: Kind | None = None
    charged: Kind | None = None
    refused: tuple[Kind, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Those that the spec leaves open."""
        return tuple(Kind.hiding(norm) for norm in self.job.norms)

    @property
    def allowed_kinds(self) -> tuple[Kind, ...]:
        """Those that may be chosen: what the data set began with, else those of which the cap holds all releases, if there are any."""
        if self.first_kind in self.kinds:
            return (self.first_kind,)
        return tuple(kind for kind in self.kinds if self.release_capacity(kind) >= self.releases) or self.kinds

    @property
    def norms(self) -> tuple[Norm, ...]:
        """In the order in which they are planned for: what is allowed, and what this release was charged with before; then the rest."""
        preferred_kinds = [kind for kind in self.kinds if kind in self.allowed_kinds or kind == self.charged]
        return tuple(kind.norm for kind in (*preferred_kinds, *(kind for kind in self.kinds if kind not in preferred_kinds)))

    def release_capacity(self, kind: Kind) -> int:
        """How many releases like this one the whole cap holds."""
        return self.job.guarantee.cap.remaining_releases(self._budget_loss(kind))

    def best(self, options: Sequence[IntegerPlan]) -> IntegerPlan:
        """The option of least error at an equal share of the cap; of two that tie, the first, which has Gaussian noise."""
        allowed = [option for option in options if option.noise.kind in self.allowed_kinds] or list(options)
        errors = [self._error_at_equal_share(option) for option in allowed]
        return next(option for option, error in zip(allowed, errors, strict=True) if error <= min(errors) * (1 + TIE))

    def is_beaten(self, norm: Norm, planned: Sequence[IntegerPlan]) -> bool:
        """Whether a kind of noise need not be planned for: what is not allowed where another kind answers the release, and what has, by
        the bound of the others' certificates, more error than they. What may have less error at the release's own budget is planned for
        all the same, and shown."""
        kind = Kind.hiding(norm)
        if kind == self.charged or self._may_be_better(kind, planned):
            return False
        if kind not in self.allowed_kinds:
            return bool(planned)
        return any(
            self._error_lower_bound(kind, option, equal_share=True) >= self._error_at_equal_share(option)
            for option in planned
        )

    def _may_be_better(self, kind: Kind, planned: Sequence[IntegerPlan]) -> bool:
        """Whether a kind of noise of which the cap has room may have less error than Gaussian noise, whatever it leaves of the cap."""
        others = [each for each in planned if each.gap is not None]
        return (
            kind == LAPLACE
            and self.release_capacity(kind) > 0
            and any(self._error_lower_bound(kind, each, equal_share=False) < each.variance for each in others)
        )

    def facts(self, options: Sequence[IntegerPlan], chosen_kind: Kind) -> dict[str, Any]:
        """What a certificate says of the kinds of noise, and why one was chosen."""
        rows = [self._row(kind, options, chosen_kind) for kind in self.kinds]
        announced = self.job.guarantee.ledger.cap.releases is not None
        choice_facts = {"releases": self.releases, "announced": announced, "why": self._choice_reason(options, chosen_kind)}
        return {"noises": rows, "noise_choice": choice_facts}

    def _row(self, kind: Kind, options: Sequence[IntegerPlan], chosen_kind: Kind) -> dict[str, Any]:
        """One kind of noise: predicted errors of this release, what it is charged, and how many like it the whole cap holds.

        A kind that was not planned for has the errors that no strategy can go below where Gaussian noise has a certificate.
        """
        design, cap, unit = _option_of_kind(kind, options), self.job.guarantee.cap, ErrorUnit.of(self.job)
        loss = self._budget_loss(kind) if design is None else design.loss
        return {
            "noise": kind.label,
            "mechanism": None if design is None else design.strategy.name,
            "rmse": None if design is None else unit.mean(self._rmse(design.variance)),
            "rmse_at_least": None
            if design is not None
            else unit.mean(self._rmse_lower_bound(kind, options, equal_share=False)),
            "rmse_at_equal_share": None if design is None else unit.mean(self._rmse(self._error_at_equal_share(design))),
            "worst": None if design is None else unit.largest(design.worst),
            "rho": str(loss.zcdp),
            "rho_decimal": float(loss.zcdp),
            "share_of_cap": float(cap.fraction_of_cap(loss)),
            "releases": cap.remaining_releases(loss),
            "chosen": kind == chosen_kind,
        }

    def _choice_reason(self, options: Sequence[IntegerPlan], chosen_kind: Kind) -> str:
        """Why a kind was chosen, in a sentence without its full stop."""
        other_kind = LAPLACE if chosen_kind == GAUSSIAN else GAUSSIAN
        if chosen_kind == self.first_kind:
            return f"the data set began with {chosen_kind.label} noise, and keeps it"
        if other_kind in self.refused:
            noise = (
                f"{other_kind.label} noise"
                if other_kind != self.first_kind
                else f"the data set began with {other_kind.label} noise, which"
            )
            return f"{noise} cannot answer this release"
        preferred = self.best(options).noise.kind
        if chosen_kind != preferred:
            return f"the release was charged with {chosen_kind.label} noise before"
        announced = self.job.guarantee.ledger.cap.releases is not None
        sharing = f"{self.releases:,} releases that " + (
            "share the cap" if announced else "the cap holds with Gaussian noise"
        )
        if other_kind not in self.allowed_kinds:
            return f"of the {sharing}, it holds {self.release_capacity(other_kind):,} with {other_kind.label} noise"
        own_design, design = _option_of_kind(chosen_kind, options), _option_of_kind(other_kind, options)
        error = None if own_design is None else self._rmse(self._error_at_equal_share(own_design))
        beaten = (
            self._rmse_lower_bound(other_kind, options, equal_share=True)
            if design is None
            else self._rmse(self._error_at_equal_share(design))
        )
        if error is None or beaten is None:
            return f"no error of {other_kind.label} noise can be predicted"
        at_least_text = "at least " if design is None else ""
        return (
            f"at an equal share of the cap for each of {sharing}, the predicted error of {other_kind.label} noise is {at_least_text}"
            f"{beaten / error:.4g} times its own"
        )

    def _budget_loss(self, kind: Kind) -> Loss:
        return self.job.guarantee.budget.loss_with(kind.norm)

    def _equal_share(self, kind: Kind) -> float:
        """Rho or epsilon of one of the releases that fill the cap together."""
        cap = self.job.guarantee.cap
        return cap.equal_rho(self.releases) if kind is GAUSSIAN else cap.equal_epsilon(self.releases)

    def _error_at_equal_share(self, design: IntegerPlan) -> float:
        """The total squared error of an option at an equal share of the cap."""
        kind, equal_share = design.noise.kind, self._equal_share(design.noise.kind)
        if not equal_share:
            return math.inf
        budget_loss = self._budget_loss(kind)
        factor = float(budget_loss.rho) / equal_share if kind == GAUSSIAN else (float(budget_loss.pure) / equal_share) ** 2
        return design.variance * factor

    def _error_lower_bound(self, kind: Kind, other_design: IntegerPlan, *, equal_share: bool) -> float:
        """The total squared error that no strategy with a kind of noise can go below, by the certificate of another kind; else 0.

        The L1 sensitivity of a strategy is at least its L2 sensitivity. At sensitivity 1 the variance of Laplace noise is 2 / epsilon^2,
        that of Gaussian noise 1 / (2 rho): so the least error of Laplace noise is at least 4 rho / epsilon^2 times that of Gaussian noise.
        """
        if kind != LAPLACE or other_design.noise.kind != GAUSSIAN or other_design.gap is None:
            return 0.0
        epsilon = self._equal_share(LAPLACE) if equal_share else float(self._budget_loss(LAPLACE).pure)
        return (
            other_design.variance
            / (1.0 + max(other_design.gap, 0.0))
            * 4.0
            * float(self._budget_loss(GAUSSIAN).rho)
            / epsilon**2
        )

    def _rmse_lower_bound(self, kind: Kind, options: Sequence[IntegerPlan], *, equal_share: bool) -> float | None:
        """``_error_lower_bound`` as the root of the mean squared error, None where nothing is known."""
        return (
            self._rmse(
                max((self._error_lower_bound(kind, option, equal_share=equal_share) for option in options), default=0.0)
            )
            or None
        )

    def _rmse(self, variance: float) -> float | None:
        queries = self.job.workload.queries.shape[0]
        return math.sqrt(variance / queries) if math.isfinite(variance) else None


def choose_noise(ledger: Ledger, job: Job) -> NoiseChoice:
    """How a release's kind of noise is chosen: by what the data set began with, else by the spec alone."""
    guarantee, charged = job.guarantee, ledger.receipt(job.release)
    companions = [
        receipt for companion_job in job.outputs.companions if (receipt := ledger.receipt(companion_job.release)) is not None
    ]
    first_receipt = companions[0] if companions else ledger.first(guarantee.dataset)
    first_kind = None if first_receipt is None or first_receipt.release == job.release else _kind_of(first_receipt)
    releases = guarantee.ledger.cap.releases or max(
        1, guarantee.cap.remaining_releases(guarantee.budget.loss_with(job.norms[0]))
    )
    return NoiseChoice(job, releases, first_kind, None if charged is None else _kind_of(charged))


def more_releases(ledger: Ledger, job: Job, options: Sequence[IntegerPlan]) -> dict[str, int]:
    """How many more releases like this one, after it, each kind of noise leaves room for, by the label of the kind."""
    guarantee, receipt = job.guarantee, ledger.receipt(job.release)
    period = budget_period(guarantee.cap.per, guarantee.period)
    account = next((candidate for candidate in ledger.budgets(guarantee.dataset) if candidate.period == period), None)
    cap, spent = (guarantee.cap, NOTHING) if account is None else (account.cap, account.spent)
    rule = account.rule if account is not None and account.releases else None
    own_count = 0 if receipt is not None and receipt.state != "aborted" else 1
    releases_by_kind = {}
    for kind in map(Kind.hiding, job.norms):
        design = _option_of_kind(kind, options)
        loss = guarantee.budget.loss_with(kind.norm) if design is None else design.loss
        releases_by_kind[kind.label] = max(0, cap.remaining_releases(loss, spent, rule) - own_count)
    return releases_by_kind


def capacity_warnings(job: Job, loss: Loss) -> list[str]:
    """A warning where the cap does not hold as many releases like one as are to share it."""
    announced, cap = job.guarantee.ledger.cap.releases, job.guarantee.cap
    holds = cap.remaining_releases(loss)
    if announced is None or holds >= announced or loss.nothing:
        return []
    return [
        f"{announced:,} releases are to share the cap ({cap}), which holds {holds:,} like this one: lower 'budget', or 'releases'"
    ]


def _option_of_kind(kind: Kind, options: Sequence[IntegerPlan]) -> IntegerPlan | None:
    return next((option for option in options if option.noise.kind == kind), None)


def _kind_of(receipt: Receipt) -> Kind | None:
    """The kind of noise that a release was charged with, None of a selection that has neither."""
    return GAUSSIAN if receipt.own_loss.rho else LAPLACE if receipt.own_loss.pure else None
