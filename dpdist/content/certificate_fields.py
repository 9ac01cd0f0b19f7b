"""The fields of certificates with their types. Written by docs/generate.py from docs/certificate.schema.json."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class HorizonFacts(TypedDict):
    """``horizon`` of a certificate."""

    of: int
    rho: str
    extended_from: NotRequired[HorizonFacts]


class ShareWithIntervalFacts(TypedDict):
    """``share_with_interval`` of a certificate."""

    share: float
    low_95: float
    high_95: float


class MeaningFacts(TypedDict):
    """``privacy.meaning`` of a certificate."""

    false_alarms: float
    found_at_most: float
    headline: str
    guess: str


class PrivacyFacts(TypedDict):
    """``privacy`` of a certificate."""

    definition: str
    noise: Literal["Gaussian", "Laplace"]
    unit: str
    unit_kind: Literal["records", "counted", "persons"]
    neighbours: Literal["add-remove", "replace-one"]
    one_change: str
    most_records_of_one_person: int
    bound_enforced_while_counting: bool
    bound: str
    meaning: MeaningFacts
    rho: str
    rho_decimal: float
    delta: float
    epsilon: float
    noise_scale_on_grid: int
    grid_spacing: float
    sensitivity_squared_on_grid: str
    most_groups_of_one_person: NotRequired[int]
    participations_of_one_person: NotRequired[int]
    separation: NotRequired[int]


class ComparedFacts(TypedDict):
    """``mechanism.compared[]`` of a certificate."""

    mechanism: str
    package: NotRequired[str]
    cost: float | None
    gap: float | None
    rmse: float | None
    worst: float | None


class MechanismFacts(TypedDict):
    """``mechanism`` of a certificate."""

    name: str
    consistent: bool
    biased: bool
    rounded: bool
    objective: Literal["total", "worst"]
    certified_gap_of_the_worst: float | None
    cost: float | None
    lower_bound: float | None
    design: NotRequired[str]
    bound: NotRequired[str]
    certified_gap: float | None
    unit: str | None
    rmse: float | None
    compared: list[ComparedFacts]


class BudgetFacts(TypedDict):
    """``budget`` of a certificate."""

    cap: str
    period: str
    course: list[list[Any]]
    ledger: str | None


class StreamFacts(TypedDict):
    """``stream`` of a certificate."""

    name: str
    steps: int
    of: int
    extended_from: NotRequired[HorizonFacts]


class PossibleFacts(TypedDict):
    """``confidence.possible`` of a certificate."""

    least: float
    records: float | None


class ConfidenceFacts(TypedDict):
    """``confidence`` of a certificate."""

    level: float
    columns: list[str]
    possible: NotRequired[PossibleFacts]


SumsFacts = TypedDict(
    "SumsFacts",
    {
        "title": str | None,
        "unit": str | None,
        "values": str,
        "from": float,
        "most_per_person": NotRequired[float],
        "to": float,
        "step": float,
        "missing": str | None,
    },
)
"""``method.sums[]`` of a certificate."""


class MethodFacts(TypedDict):
    """``method`` of a certificate."""

    counted: str
    persons: NotRequired[bool]
    missing_persons: NotRequired[Literal["drop", "each"]]
    meaning: str
    record: NotRequired[str]
    attributes: dict[str, dict[str, Any]]
    asked: list[str]
    calibration: str
    cap: str
    sums: NotRequired[dict[str, SumsFacts]]


class RevisesFacts(TypedDict):
    """``revises[]`` of a certificate."""

    group: str
    release: str
    certificate: str
    answers: int
    changed: int
    largest_change: float


class RoundingFacts(TypedDict):
    """``rounding`` of a certificate."""

    rule: Literal["nearest", "unbiased"]
    deviation: float
    adds_up: bool
    apart: list[str]
    held: NotRequired[list[str]]


class NoiseChoiceFacts(TypedDict):
    """``noise_choice`` of a certificate."""

    releases: int
    announced: bool
    why: str


class ModelledFacts(TypedDict):
    """``modelled[]`` of a certificate."""

    table: list[str]
    sum_of_errors_at_most: float


class RoundsFacts(TypedDict):
    """``rounds[]`` of a certificate."""

    table: list[str]
    standard_error: float


class SelectionsFacts(TypedDict):
    """``selections[]`` of a certificate."""

    attribute: str
    names: int | None
    most: int
    share: float
    rho: str
    delta: float
    threshold: float
    scale: str
    deviation: float
    selected_half_of_the_time: int
    selected_almost_always: int
    names_per_person: int | None
    selected_half_of_the_time_beside_others: int | None
    selected_almost_always_beside_others: int | None


class WholeWindowsFacts(TypedDict):
    """``whole_windows[]`` of a certificate."""

    shape: list[int]
    axis: int
    first: int
    stop: int


class EdgeChoicesFacts(TypedDict):
    """``chosen_edges[].edge_choices[]`` of a certificate."""

    edge: int
    level: int
    at: str
    rate: str


class ChosenEdgesFacts(TypedDict):
    """``chosen_edges[]`` of a certificate."""

    of: str
    edges: list[float] | None
    bins: int
    values: int
    step: float
    share: float
    rho: str
    moved: int
    edge_choices: list[EdgeChoicesFacts]


class ChosenBoundFacts(TypedDict):
    """``chosen_bound`` of a certificate."""

    most_records: int
    up_to: int
    share: float
    rho: str
    deviation: float
    scale: NotRequired[int]
    values: NotRequired[list[int]]
    persons_beyond: ShareWithIntervalFacts
    records_left_out: ShareWithIntervalFacts


class ChosenGroupsFacts(TypedDict):
    """``chosen_groups`` of a certificate."""

    most_groups: int
    up_to: int
    share: float
    rho: str
    deviation: float
    scale: NotRequired[int]
    values: NotRequired[list[int]]
    persons_in_more_groups: ShareWithIntervalFacts
    groups_left_out: ShareWithIntervalFacts


ChosenRangesFacts = TypedDict(
    "ChosenRangesFacts",
    {
        "of": str,
        "from": float,
        "down_to": float,
        "to": float,
        "up_to": float,
        "share": float,
        "rho": str,
        "deviation": float,
        "scale": NotRequired[int],
        "values": NotRequired[list[int]],
        "amounts_beyond": "ShareWithIntervalFacts",
        "sum_left_out": "ShareWithIntervalFacts",
    },
)
"""``chosen_ranges[]`` of a certificate."""


class AllRecordsFacts(TypedDict):
    """``left_out.persons.all_records`` of a certificate."""

    estimate: float
    low_95: float
    high_95: float


class PersonsFacts(TypedDict):
    """``left_out.persons`` of a certificate."""

    beyond: ShareWithIntervalFacts
    records: ShareWithIntervalFacts
    up_to: int
    all_records: NotRequired[AllRecordsFacts]


class ExcessFacts(TypedDict):
    """``left_out.amounts[].excess`` of a certificate."""

    estimate: float
    low_95: float
    high_95: float


class AmountsFacts(TypedDict):
    """``left_out.amounts[]`` of a certificate."""

    outside: ShareWithIntervalFacts
    above: ShareWithIntervalFacts
    below: ShareWithIntervalFacts
    excess: ExcessFacts
    up_to: list[float]


class LeftOutFacts(TypedDict):
    """``left_out`` of a certificate."""

    share: float
    rho: str
    most: int | None
    records: int
    scale: int
    values: list[int]
    persons: NotRequired[PersonsFacts]
    amounts: dict[str, AmountsFacts]


class CompletenessFacts(TypedDict):
    """``completeness`` of a certificate."""

    share: float
    rho: str
    of: Literal["persons", "records"]
    moved: int
    scale: int
    values: list[int]
    missing: ShareWithIntervalFacts
    outside: ShareWithIntervalFacts


class ChoicesFacts(TypedDict):
    """``quantiles.choices[]`` of a certificate."""

    of: str
    at: str
    values: int
    rate: str
    end_rate: str
    beyond: int


class RowsFacts(TypedDict):
    """``quantiles.rows[]`` of a certificate."""

    of: str
    at: float
    group: dict[str, str]
    value: float
    low_95: float
    high_95: float


class QuantilesFacts(TypedDict):
    """``quantiles`` of a certificate."""

    share: float
    rho: str
    columns: dict[str, dict[str, Any]]
    by: list[str]
    moved: int
    choices: list[ChoicesFacts]
    rows: list[RowsFacts]


class OfFacts(TypedDict):
    """``thresholded.of[]`` of a certificate."""

    codes: int | None
    integers: list[int] | None
    alphabet: str | None
    length: int | None
    sha256: NotRequired[str]


class TotalsFacts(TypedDict):
    """``thresholded.rest.totals[]`` of a certificate."""

    keys: dict[str, str]
    rest: float
    total: float
    low_95: float
    high_95: float


class RestFacts(TypedDict):
    """``thresholded.rest`` of a certificate."""

    share: float
    rho: str
    by: list[str]
    measured: Literal["rest", "totals"]
    scale: str
    deviation: float
    totals: list[TotalsFacts]


class ThresholdedFacts(TypedDict):
    """``thresholded`` of a certificate."""

    share: float
    rho: str
    of: dict[str, OfFacts]
    cells: str
    at_least: float
    cells_per_person: int | None
    records_per_cell: int | None
    scale: str
    deviation: float
    expected_false_rows: float
    rest: NotRequired[RestFacts]
    published_half_of_the_time: int
    published_almost_always: int
    rows: int


class Claims(TypedDict):
    """What a plan claims of its release."""

    release: str
    language: NotRequired[str]
    period: str | None
    dataset: str
    spec_digest: str
    strategy_digest: str
    privacy: PrivacyFacts
    mechanism: MechanismFacts
    budget: BudgetFacts | None
    queries: int
    cells: int
    stream: StreamFacts | None
    post_processing: list[str]
    confidence: ConfidenceFacts
    versions: dict[str, str]
    method: MethodFacts
    targets: NotRequired[dict[str, Any]]
    revises: NotRequired[list[RevisesFacts]]
    rounding: NotRequired[RoundingFacts]
    non_negative: NotRequired[dict[str, Any]]
    noises: NotRequired[list[dict[str, Any]]]
    noise_choice: NotRequired[NoiseChoiceFacts]
    modelled: NotRequired[list[ModelledFacts]]
    rounds: NotRequired[list[RoundsFacts]]
    selections: NotRequired[list[SelectionsFacts]]
    whole_windows: NotRequired[list[WholeWindowsFacts | None]]
    chosen_edges: NotRequired[list[ChosenEdgesFacts]]
    chosen_bound: NotRequired[ChosenBoundFacts]
    chosen_groups: NotRequired[ChosenGroupsFacts]
    chosen_ranges: NotRequired[list[ChosenRangesFacts]]
    left_out: NotRequired[LeftOutFacts]
    completeness: NotRequired[CompletenessFacts]
    quantiles: NotRequired[QuantilesFacts]
    thresholded: NotRequired[ThresholdedFacts]


class MeasurementFacts(TypedDict):
    """``measurement`` of a certificate."""

    file: str | None
    format: int | None
    values: int | None
    why: str | None


class SuppressionFacts(TypedDict):
    """``suppression`` of a certificate."""

    below: float
    at: float
    shown: int
    answers: int
    hidden_groups: NotRequired[list[str]]
    shown_at_zero: float
    shown_at_limit: float
    dropped_at_double: float
    sure_from: float


class MeansFacts(TypedDict):
    """``means`` of a certificate."""

    file: str
    rows: int
    interval: str


class VariancesFacts(TypedDict):
    """``variances`` of a certificate."""

    file: str
    rows: int
    interval: str


class Certificate(Claims):
    """The certificate of a published release."""

    format: Literal[2]
    measurement: MeasurementFacts
    measurements: dict[str, str]
    decimals: int
    files: dict[str, str]
    suppression: NotRequired[SuppressionFacts]
    means: NotRequired[MeansFacts]
    variances: NotRequired[VariancesFacts]
