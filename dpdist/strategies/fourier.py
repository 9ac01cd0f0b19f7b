"""The Fourier strategy for marginals: every needed coefficient of an orthonormal product basis, with equal noise."""

from __future__ import annotations

from dpdist.strategies.base import Strategy
from dpdist.strategies.marginals import marginal_weights, over_residuals
from dpdist.workloads import Workload


def fourier(workload: Workload) -> Strategy:
    """Equal precision for every coefficient that the marginals need. Raises: InvalidInput for other workloads.

    Source: Barak et al. 2007; unneeded coefficients are left out as in Li & Miklau 2012, section 5. The coefficients of an
    attribute set span the same space in any orthonormal product basis whose first vector is constant, so the contrasts
    measured here give the same errors as the Fourier (for binary attributes: Hadamard) basis.
    """
    return over_residuals("fourier", workload, dict.fromkeys(marginal_weights(workload), 1.0))
