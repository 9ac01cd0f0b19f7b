"""Series over time, and the filters that can be applied to them: one class a filter."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.queries.matrix_file import matrix_in
from dpdist.spec.tagged_unions import Family, SpecKind, UnionPart
from dpdist.spec.value_types import PathText, SpecPart
from dpdist.workloads import Filter
from dpdist.workloads.time_filters import (
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    running_sum,
    window,
)


class FilterKind(SpecKind):
    """A filter of a series."""

    reads_file: ClassVar[bool] = False
    """Whether its coefficients are in a file."""
    whole: ClassVar[bool] = False
    """Whether it means something only where all of its steps lie within the series."""

    allows_fewer_steps: ClassVar[bool] = False
    """Whether it means the same of fewer steps, as a mean does."""

    @abstractmethod
    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        """The filter for a series of so many steps."""

    def words(self) -> str:
        """Which filter it is."""
        return f"{self.key()} {getattr(self, self.key()):g}"


class RunningSum(FilterKind):
    """The sum of all steps so far."""

    running_sum: Literal[True] = Field(description="the sum of all steps so far", examples=[True])

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return running_sum(steps, sizes)

    def words(self) -> str:
        return "running sum"


class Window(FilterKind):
    """The sum of the last steps."""

    whole: ClassVar[bool] = True

    window: int = Field(ge=1, description="the sum of the last so many steps", examples=[7])

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return window(self.window)


class MovingMean(FilterKind):
    """The mean of the last steps."""

    whole: ClassVar[bool] = True
    allows_fewer_steps: ClassVar[bool] = True

    mean: int = Field(ge=1, description="the mean of the last so many steps", examples=[7])

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return window(self.mean, mean=True)


class Exponential(FilterKind):
    """A sum in which old steps weigh exponentially less."""

    exponential: float = Field(
        gt=0,
        lt=1,
        description="a sum in which a step k steps ago has weight a^k; this key is a",
        examples=[0.9],
    )

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return exponential(self.exponential, steps)


class Polynomial(FilterKind):
    """A sum in which old steps weigh less by a power."""

    polynomial: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="a sum in which a step k steps ago has weight (k + 1)^-p; this key is p",
        examples=[0.5],
    )

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return polynomial(self.polynomial, steps, sizes)


class Trend(FilterKind):
    """A smooth trend."""

    trend: float = Field(
        gt=0, allow_inf_nan=False, description="the Hodrick-Prescott trend with this lambda", examples=[1600]
    )

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return hodrick_prescott(self.trend, steps)


class Cycle(FilterKind):
    """What a smooth trend leaves."""

    cycle: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="the Hodrick-Prescott cycle (series minus trend) with this lambda",
        examples=[1600],
    )

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return hodrick_prescott(self.cycle, steps, component="cycle")


class Band(FilterKind):
    """What lies between two periods."""

    whole: ClassVar[bool] = True

    band: tuple[float, float] = Field(
        description="a Baxter-King band-pass filter: the shortest and the longest period that pass, in steps",
        examples=[[12, 36]],
    )
    width: int = Field(12, ge=1, description="half the width of the Baxter-King filter, in steps", examples=[36])

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return baxter_king(*self.band, self.width)

    def words(self) -> str:
        return f"band {self.band[0]:g} to {self.band[1]:g}"


class OwnFilter(FilterKind):
    """OwnFilter of users' own."""

    reads_file: ClassVar[bool] = True

    file: PathText = Field(
        description="a .npy file with the coefficients; the first one belongs to the present step",
        examples=["coefficients.npy"],
    )

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return coefficients(matrix_in(folder / self.file), self.file)

    def words(self) -> str:
        return "the publisher's own coefficients"


FILTERS = Family(RunningSum, Window, MovingMean, Exponential, Polynomial, Trend, Cycle, Band, OwnFilter)
"""The filters that specs can ask for."""


class FilterSpec(UnionPart):
    """One filter. Give exactly one of the kinds; 'width' belongs to 'band'."""

    kind: Annotated[FilterKind, FILTERS]


MOST_NORMALISED = 1024
"""Steps of a series with means over fewer steps at the ends, whose rows are held one by one."""


class FiltersSpec(SpecPart):
    """A series of counts over time, with filters that are asked at every step."""

    of: str = Field(
        description="the attribute that holds the time: one with 'dates', with 'edges', or with 'from' and 'to'",
        examples=["hour"],
    )
    by: tuple[str, ...] = Field(
        (), description="asks one series for every combination of these attributes' values", examples=[["station"]]
    )
    apply: tuple[FilterSpec, ...] = Field(min_length=1, description="the filters. Each is asked at every step")
    circular: bool = Field(
        False, description="treats the first step as the one after the last, as in hours of a day", examples=[True]
    )
    ends: Literal["full", "cut", "normalised"] = Field(
        "full",
        description="what windows, means and bands answer at steps where they reach beyond the series. 'full': nothing, so that the first "
        "full window is the first answer. 'cut': what the steps within the series add, as if there had been nothing before them. "
        "'normalised', of means: the mean of the steps within the series, fewer at the ends, in up to "
        f"{MOST_NORMALISED:,} steps and not for a stream. Running "
        "sums and decays are of all steps so far, from the first one on",
        examples=["cut"],
    )
    around: int | None = Field(
        None,
        ge=0,
        description="in place of the counts, filters their absolute distances from this public count: the volatility around a known mean",
        examples=[140],
    )
