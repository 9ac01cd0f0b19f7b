"""The accountant: privacy losses and how they compose, what they mean as (epsilon, delta), and which noise keeps to them."""

from __future__ import annotations

from dpdist.privacy.accounting.budget_caps import Cap, Rule
from dpdist.privacy.accounting.composition import pld_epsilon
from dpdist.privacy.accounting.gaussian_calibration import (
    RESERVE,
    RHO_DENOMINATOR,
    SLACK_DENOMINATOR,
    Calibration,
    analytic_gaussian,
    classic_noise_multiplier,
    gaussian_scale,
    gaussian_slack,
    rho_for,
)
from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent, laplace_scale
from dpdist.privacy.accounting.privacy_loss import NOTHING, Loss
from dpdist.privacy.accounting.zcdp_conversion import gaussian_delta, gaussian_epsilon, zcdp_delta, zcdp_epsilon

__all__ = [
    "NOTHING",
    "RESERVE",
    "RHO_DENOMINATOR",
    "SLACK_DENOMINATOR",
    "Calibration",
    "Cap",
    "Loss",
    "Rule",
    "analytic_gaussian",
    "classic_noise_multiplier",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_equivalent",
    "gaussian_scale",
    "gaussian_slack",
    "laplace_scale",
    "pld_epsilon",
    "rho_for",
    "zcdp_delta",
    "zcdp_epsilon",
]
