"""What a session is made of: budgets, who is protected, and questions; each is checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from dpdist.errors import InvalidSpec
from dpdist.spec.error_messages import explain_errors
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.amount_columns import SumSpec

NameOrNames = str | Sequence[str]
"""One name, or several."""
SpecContent = dict[str, Any]
"""A part of a spec, as YAML writes it."""


def validate_section(section: type[BaseModel], name: str, content: SpecContent) -> Any:
    """The part of a spec that some content is. Raises: InvalidSpec, which calls it by the name."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        raise InvalidSpec(explain_errors(error, content, {}, name)) from None


def drop_none(**options: Any) -> SpecContent:
    """The options that are not None."""
    return {key: value for key, value in options.items() if value is not None}


def check_kind(label: str, value: object, kinds: type | tuple[type, ...], example: str) -> None:
    """Accept an object of a kind. Raises: InvalidSpec for another one, with an example."""
    if not isinstance(value, kinds):
        raise InvalidSpec(f"{label} is given as {example}; found {type(value).__name__}")


@dataclass(frozen=True, repr=False)
class Budget:
    """A privacy budget: epsilon with delta, epsilon alone (pure), or rho (zCDP); as a data set's cap also per what it is.

    Attributes:
        delta: well below 1 / number of persons.
        per: of a cap: the releases that it covers together.
        selection: of a cap: the delta that is set aside for selections of names.
        releases: of a cap: how many releases are to share it; by this the kind of noise is chosen.
    """

    epsilon: float | str | None = None
    delta: float | str | None = None
    rho: float | str | None = None
    per: Literal["total", "day", "week", "month"] | None = None
    selection: float | str | None = None
    releases: int | None = None

    @property
    def content(self) -> SpecContent:
        """As a spec writes it."""
        return drop_none(**asdict(self))

    def __repr__(self) -> str:
        return f"Budget({', '.join(f'{key}={value!r}' for key, value in self.content.items())})"


@dataclass(frozen=True)
class Records:
    """Every record is protected by itself, or so many together, whoever they belong to.

    Attributes:
        most_records: how many are protected together; nobody checks that a person has no more.
    """

    most_records: int = 1

    @property
    def content(self) -> SpecContent:
        """As a spec writes it."""
        return {} if self.most_records == 1 else {"most_records": self.most_records}


@dataclass(frozen=True)
class Persons:
    """Every person is protected with all their records.

    Attributes:
        column: the column that identifies the person.
        most_records: how many records of one person count: the first ones in the order of files and rows.
        most_groups: in how many groups one person counts, with up to ``most_records`` records in each.
        type: how values of the column are compared.
        missing: what becomes of records without a person: they are left out ("drop"), or each is a person of its own ("each").
        more: other keys of a person in a spec.
    """

    column: str
    most_records: int | Literal["private"] = 1
    most_groups: int | Literal["private"] | None = None
    type: Literal["text", "integer"] | None = None
    missing: Literal["drop", "each"] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> SpecContent:
        """As a spec writes it."""
        values = asdict(self)
        return {**drop_none(**{key: values[key] for key in values if key != "more"}), **self.more}


@dataclass(frozen=True)
class Question:
    """A group of queries, and the columns of amounts that it adds up.

    Attributes:
        entry: of a spec's workload.
        amounts: of a spec's sums, by columns.
    """

    entry: SpecContent
    amounts: Mapping[str, SpecContent] = field(default_factory=dict)


def question(amounts: Mapping[str, SpecContent] | None = None, /, **entry: Any) -> Question:
    """Any group of queries that a spec can ask for: ``question(cdf={"of": "age"}, weight=2)``.

    Args:
        amounts: the columns that it adds up, as ``sums`` of a spec declares them.
        entry: its keys.
    Raises: InvalidSpec.
    """
    validate_section(QuerySpec, "question", entry)
    return Question(entry, amounts or {})


def marginals(*asked: int | NameOrNames, among: NameOrNames = (), **more: Any) -> Question:
    """Counts of every combination of values: of all tables of so many attributes, or of listed tables.

    Args:
        asked: ``1, 2`` for all tables of one and of two attributes, ``"branch", ("age", "branch")`` for these two tables.
        among: the attributes that numbers combine. Default: all.
        more: other keys of a group of queries, such as ``weight`` and ``target``.
    Raises: InvalidSpec.
    """
    tables = [_as_name_list(argument) for argument in asked if not isinstance(argument, int)]
    if tables and (among or len(tables) < len(asked)):
        raise InvalidSpec("marginals are asked for by numbers of attributes, which 'among' may limit, or by their names")
    if tables:
        return question(marginals={"of": tables}, **more)
    return question(marginals={"ways": list(asked), **({"among": _as_name_list(among)} if among else {})}, **more)


def cdf(of: str, *, by: NameOrNames = (), **more: Any) -> Question:
    """Counts of the records at or below each value of an attribute.

    Args:
        of: an attribute with an order.
        by: the attributes for each combination of whose values it is counted. Default: over all records.
        more: other keys of a group of queries, such as ``weight`` and ``target``.
    Raises: InvalidSpec.
    """
    return question(cdf={"of": of, **({"by": _as_name_list(by)} if by else {})}, **more)


def ranges(of: NameOrNames, *, by: NameOrNames = (), **more: Any) -> Question:
    """Counts of the records in all intervals of an attribute, or in all boxes of several.

    Args:
        of: attributes with an order.
        by: as for ``cdf``.
        more: as for ``cdf``.
    Raises: InvalidSpec.
    """
    return question(ranges={"of": _as_name_list(of), **({"by": _as_name_list(by)} if by else {})}, **more)


def sums(of: str, *, by: NameOrNames = (), between: Sequence[float], **options: Any) -> Question:
    """Sums of amounts.

    Args:
        of: the column of amounts.
        by: the attributes for each combination of whose values they are added up. Default: over all records.
        between: the smallest and the largest amount; others are counted as these.
        options: other keys of a column of amounts (``step``, ``unit``, ``missing``, ``most_per_person``) or of a group of queries.
    Raises: InvalidSpec.
    """
    return _statistic_question("sum", of, by, between, options)


def means(of: str, *, by: NameOrNames = (), between: Sequence[float], **options: Any) -> Question:
    """Means of amounts.

    Args:
        of: as for ``sums``.
        by: as for ``sums``.
        between: as for ``sums``.
        options: as for ``sums``.
    Raises: InvalidSpec.
    """
    return _statistic_question("mean", of, by, between, options)


def variances(of: str, *, by: NameOrNames = (), between: Sequence[float], **options: Any) -> Question:
    """Variances and standard deviations of amounts.

    Args:
        of: as for ``sums``.
        by: as for ``sums``.
        between: as for ``sums``.
        options: as for ``sums``.
    Raises: InvalidSpec.
    """
    return _statistic_question("variance", of, by, between, options)


def rows(matrix: Any, file: str | Path, *, labels: Sequence[str] | None = None, **more: Any) -> Question:
    """Queries of your own.

    Args:
        matrix: a row for each query and a column for each cell, dense or sparse, or a ``dpdist.workloads.Workload``.
        file: where it is written for the spec to name: a .npy file below the current folder, or a .npz file for a sparse one.
        labels: a name for each row. Default: the numbers of the rows.
        more: other keys of a group of queries, such as ``weight``.
    Raises: InvalidSpec.
    """
    import numpy as np
    import scipy.sparse

    from dpdist.workloads import Workload

    if isinstance(matrix, Workload):
        matrix = matrix.unweighted.dense()
    if Path(file).suffix == ".npz":
        scipy.sparse.save_npz(file, scipy.sparse.csr_array(matrix))
    else:
        np.save(file, matrix)
    return question(rows={"file": str(file), **drop_none(names=labels and list(labels))}, **more)


def _as_name_list(names_given: NameOrNames) -> list[str]:
    """One name or several, as a list."""
    return [names_given] if isinstance(names_given, str) else list(names_given)


def _statistic_question(
    kind: str, column: str, group_columns: NameOrNames, limits: Sequence[float], options: dict[str, Any]
) -> Question:
    """A statistic of a column of amounts."""
    if len(limits) != 2:
        raise InvalidSpec(
            f"{kind} of {column!r}: 'between' is the smallest and the largest amount, found {len(limits)} numbers"
        )
    sum_options = {key: options.pop(key) for key in tuple(options) if key in SumSpec.model_fields}
    amounts = {"from": limits[0], "to": limits[1], **sum_options}
    validate_section(SumSpec, f"{kind} of {column!r}", amounts)
    return question({column: amounts}, marginals={"of": [_as_name_list(group_columns)]}, **{kind: column}, **options)
