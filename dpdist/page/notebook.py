"""What Python users see of a release: answers in their favourite form, and what a notebook shows."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from html import escape
from typing import Any

import pyarrow as pa

from dpdist.errors import InvalidInput
from dpdist.workloads import Workload


@dataclass(frozen=True)
class Table:
    """Published answers in the reader's favourite form.

    Attributes:
        arrow: group, query, one column an attribute, answer, standard error, 95 % interval.
    """

    arrow: pa.Table
    workload: Workload

    def pandas(self) -> Any:
        """A pandas DataFrame. Raises: InvalidInput when pandas is not installed."""
        _installed("pandas")
        return self.arrow.to_pandas()

    def polars(self) -> Any:
        """A Polars DataFrame. Raises: InvalidInput when Polars is not installed."""
        return _installed("polars").from_arrow(self.arrow)

    def xarray(self) -> Any:
        """An xarray Dataset a group of products of attributes: answer, standard_error and the interval over labelled axes.

        Returns: name of the group -> Dataset. Raises: InvalidInput when xarray is not installed.
        """
        xarray = _installed("xarray")
        names, out = self.workload.domain.names, {}
        for first, block in self.workload.block_starts():
            rows = self.arrow.slice(first, block.queries)
            axes = [names[axis] for axis in block.axes] if block.separable else ["query"]
            shape = tuple(len(part) for part in block.labels)
            columns = ("answer", "standard_error", "low_95", "high_95")
            values = {name: (axes, rows[name].to_numpy().reshape(shape)) for name in columns}
            out[block.name] = xarray.Dataset(values, coords={a: list(p) for a, p in zip(axes, block.labels, strict=True)})
        return out

    def _repr_html_(self) -> str:
        return _html_rows(self.arrow)


def _installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InvalidInput(f"{package} is not installed; pip install {package}, or use the Arrow table") from None


NOTEBOOK_ROWS = 10


def notebook(certificate: dict[str, Any], table: pa.Table | None) -> str:
    """What a notebook shows of a plan, or of a release with its first answers."""
    facts, privacy = certificate["mechanism"], certificate["privacy"]
    gap = (
        "not certified"
        if facts["certified_gap"] is None
        else f"certified within {over_bound(facts['certified_gap'])} of the optimum"
    )
    rmse = "" if facts["rmse"] is None else f", RMSE {facts['rmse']:.4g}"
    head = (
        f"<p><b>{escape(certificate['release'])}</b>: {certificate['queries']:,} answers over {certificate['cells']:,} cells; "
        f"{escape(facts['name'])}{rmse}, {gap}; &epsilon; = {privacy['epsilon']:.4g}"
        f"{' at &delta; = ' + format(privacy['delta'], '.1e') if privacy['delta'] else ''}, protects {escape(privacy['unit'])}</p>"
    )
    return head if table is None else head + _html_rows(table)


def _html_rows(table: pa.Table) -> str:
    columns = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    rows = table.select(columns).slice(0, NOTEBOOK_ROWS).to_pylist()
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_shown(row[name]))}</td>" for name in columns) + "</tr>" for row in rows)
    more = f"<p>{table.num_rows - len(rows):,} more rows</p>" if table.num_rows > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _shown(value: Any) -> str:
    return "not known" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


def over_bound(gap: float) -> str:
    """Total squared error over the certified lower bound, readable near 1 and far from it."""
    return f"1 + {max(gap, 0.0):.1e}" if gap < 1e-3 else f"{1 + gap:.4g}"
