"""Mechanisms of the papers, for comparison: low rank, exponential smoothing, and for marginals Fourier and DataCube."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "published_baselines",
    mechanisms=(
        "dpdist.plugins.published_baselines.published_mechanisms:LOW_RANK",
        "dpdist.plugins.published_baselines.published_mechanisms:SMOOTHING",
        "dpdist.plugins.published_baselines.published_mechanisms:FOURIER",
        "dpdist.plugins.published_baselines.published_mechanisms:DATACUBE",
    ),
    efforts={
        "low_rank": "dpdist.plugins.published_baselines.published_mechanisms:low_rank_effort",
        "smoothing": "dpdist.plugins.published_baselines.published_mechanisms:smoothing_effort",
    },
    strategies={
        "datacube": "dpdist.plugins.published_baselines.marginal_baselines:datacube",
        "fourier": "dpdist.plugins.published_baselines.marginal_baselines:fourier",
        "low_rank": "dpdist.plugins.published_baselines.low_rank_factorisation:low_rank",
        "smoothing": "dpdist.plugins.published_baselines.exponential_smoothing:smoothing",
    },
)
