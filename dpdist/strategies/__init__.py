"""Mechanisms: one strategy a file, the bounds that certify them, and the planner that compares them."""

from dpdist.strategies.base import OnStep, Solve, Step, Strategy, matrix_mechanism_cost
from dpdist.strategies.bounds import dual_bound, hardt_talwar, lemma_4, singular_value_bound
from dpdist.strategies.coa import coa
from dpdist.strategies.identity import gaussian, identity

__all__ = [
    "OnStep",
    "Solve",
    "Step",
    "Strategy",
    "coa",
    "dual_bound",
    "gaussian",
    "hardt_talwar",
    "identity",
    "lemma_4",
    "matrix_mechanism_cost",
    "singular_value_bound",
]
