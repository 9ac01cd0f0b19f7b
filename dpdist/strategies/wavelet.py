"""WM: noise on Haar wavelet coefficients (Privelet; Xiao, Wang, Gehrke 2010)."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.operators import Haar
from dpdist.strategies.attributes import attribute_by_attribute
from dpdist.strategies.base import Norm, Strategy
from dpdist.workloads import Workload


def wavelet(
    shape: Sequence[int], workload: Workload | None = None, *, ordered: Sequence[bool] | None = None, norm: Norm = "l2"
) -> Strategy:
    """Haar coefficients along each ordered attribute, their products over several.

    Args:
        shape: sizes of the attributes.
        workload: gives the cost, and which attributes are ordered.
        ordered: which attributes have an order; the others are measured value by value, as in Privelet+.
    """
    return attribute_by_attribute("wavelet", Haar, shape, workload, ordered, norm)
