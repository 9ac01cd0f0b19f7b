"""Privacy budgets of releases, caps of data sets, and the data set that is charged."""

from __future__ import annotations

import datetime
from fractions import Fraction
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.privacy.accounting import NOTHING, Calibration, Cap, Loss, rho_for
from dpdist.spec.value_types import Exact, Name, SpecPart


class BudgetSpec(SpecPart):
    """A privacy budget: rho (zCDP, Gaussian noise), epsilon with delta (either noise), or epsilon alone (Laplace noise)."""

    rho: Exact | None = Field(
        None, description="an amount of zero-concentrated differential privacy (zCDP), in place of epsilon", examples=[0.05]
    )
    epsilon: Exact | None = Field(
        None,
        description="with delta, 'noise' says which noise it buys; without delta (pure epsilon) it is Laplace noise",
        examples=[1],
    )
    delta: Exact | None = Field(
        None,
        description="a small probability, well below 1 / number of persons. Leave it out for pure epsilon",
        examples=[1e-6],
    )

    @model_validator(mode="after")
    def _one_form(self) -> BudgetSpec:
        if (self.rho is None) == (self.epsilon is None) or (self.epsilon is None and self.delta is not None):
            raise ValueError("give either 'rho', or 'epsilon' and 'delta', or 'epsilon' alone (pure, Laplace noise)")
        for name in ("rho", "epsilon", "delta"):
            amount = getattr(self, name)
            if amount is not None and amount <= 0:
                raise ValueError(
                    f"{name} must be positive, found {float(amount):g}; a release without budget reveals nothing"
                )
        if self.delta is not None and self.delta >= 1:
            raise ValueError(f"delta lies in (0, 1), found {float(self.delta):g}; take less than 1 / number of persons")
        return self


class ReleaseBudgetSpec(BudgetSpec):
    """The privacy budget of this release."""

    calibration: Calibration = Field(
        "analytic",
        description="how epsilon and delta become an amount of Gaussian noise: exactly ('analytic', the least noise), through zCDP, or "
        "by the classic formula of the papers, which adds more noise than needed",
        examples=["zcdp"],
    )

    @property
    def pure(self) -> bool:
        """Whether no delta is spent: Laplace noise."""
        return self.rho is None and self.delta is None

    @cached_property
    def loss(self) -> Loss:
        """The exact amount that is charged, unless the spec asks for the other kind of noise."""
        return self.loss_with("l1" if self.pure else "l2")

    def loss_with(self, norm: Norm) -> Loss:
        """The exact amount that is charged with Gaussian ("l2") or with Laplace noise ("l1"), which leaves the delta unspent.

        Raises: InvalidInput when the budget does not buy that noise.
        """
        if norm == "l1":
            if self.epsilon is None:
                raise InvalidInput("Laplace noise needs an 'epsilon': replace 'rho', or set 'noise: gaussian'")
            return Loss.laplace(self.epsilon)
        if self.rho is not None:
            return Loss.gaussian(self.rho)
        if self.pure:
            raise InvalidInput("Gaussian noise needs a 'delta' or 'rho': add one, or leave 'noise' out")
        return self._gaussian

    def loss_beside(self, delta: Fraction, norm: Norm) -> Loss:
        """What the budget buys of a kind of noise beside selections of names that fail with probability ``delta``.

        Raises: InvalidInput when it buys nothing, or the delta is more than its own.
        """
        if self.delta is not None and (delta > self.delta or (delta == self.delta and norm == "l2")):
            raise InvalidInput(
                f"the selection's delta of {float(delta):g} leaves nothing of the budget's {float(self.delta):g}: take a part of it"
            )
        if not delta or norm == "l1" or self.delta is None or self.epsilon is None:
            return self.loss_with(norm)
        return Loss.gaussian(rho_for(float(self.epsilon), float(self.delta - delta), self.calibration))

    def of_loss(self, loss: Loss) -> ReleaseBudgetSpec:
        """The budget of a loss."""
        return self.model_construct(
            rho=loss.rho or None, epsilon=loss.pure or None, delta=None, calibration=self.calibration
        )

    @cached_property
    def _gaussian(self) -> Loss:
        assert self.epsilon is not None
        assert self.delta is not None
        return Loss.gaussian(rho_for(float(self.epsilon), float(self.delta), self.calibration))


class CapSpec(BudgetSpec):
    """The most that all releases of the data set may spend, in total or per day, week or month."""

    selection: Exact = Field(
        Fraction(0),
        description="the delta that is set aside for selections of names ('categories: private'). It is a part of the cap's delta. A cap "
        "in rho, or in epsilon alone, has no delta of its own, so there it is added to the guarantee",
        examples=[1e-7],
    )

    per: Literal["total", "day", "week", "month"] = Field(
        "total",
        description="what the cap covers: all releases of the data set together, or the releases of one day, week or month. Use a "
        "period only if each record belongs to one period",
        examples=["week"],
    )

    releases: int | None = Field(
        None,
        gt=0,
        description="how many releases are to share the cap (under a cap per day, week or month: those of one period). 'noise: auto' "
        "compares the kinds of noise as if each of them took the same share; nothing is charged by it. Default: as many as the cap "
        "holds of this release with Gaussian noise",
        examples=[52],
    )

    @property
    def cap(self) -> Cap:
        """As the ledger knows it."""
        return Cap(
            rho=self.rho, epsilon=self.epsilon, delta=self.delta or Fraction(0), per=self.per, selection=self.selection
        )


class LedgerSpec(SpecPart):
    """The data set that is charged."""

    dataset: Name = Field(
        description="the name of the data set in the ledger. Releases about the same persons must be charged under the same name",
        examples=["visitors"],
    )
    cap: CapSpec = Field(
        description="the most that all releases of the data set may spend together. Every spec of the data set states the same cap"
    )
    shared_records: bool = Field(
        False,
        description="allows these records to be charged under another data set's name too, or in another period. Without it the "
        "ledger refuses records that it has seen there",
        examples=[True],
    )

    def check(self, loss: Loss, selection: Fraction = Fraction(0)) -> None:
        """Accept a release that the whole cap allows. Raises: InvalidInput.

        Args:
            selection: the delta of a selection of names before it.
        """
        cap = self.cap.cap
        if self.cap.selection < selection:
            raise InvalidInput(
                f"a selection with delta {float(selection):g} needs a cap that sets as much aside for selections, found "
                f"{float(self.cap.selection):g}: add 'selection: {float(selection):g}' to 'ledger: cap'"
            )
        if cap.pure and loss.rho:
            raise InvalidInput(
                "the data set's cap is a pure epsilon, which Gaussian noise can never keep: give the release an 'epsilon' without "
                "'delta', or the cap a 'delta'"
            )
        if not cap.allows(loss):
            requested, _, delta = cap.requested_and_remaining(loss, NOTHING)
            delta_text = f" at delta={delta:g}" if delta else ""
            raise InvalidInput(
                f"the release asks for {cap.written}={requested:.6g}{delta_text}, the data set's whole cap is {cap}; lower the budget"
            )

    def check_period(self, period: datetime.date | None) -> None:
        """Accept a release whose day is known where the cap is per period. Raises: InvalidInput."""
        if self.cap.per != "total" and period is None:
            raise InvalidInput(f"a budget per {self.cap.per} needs the release's day; add 'period: YYYY-MM-DD'")
