"""Google's dp_auditorium (Kong et al. 2023) on what every mechanism measures, and on the same with planted faults.

Of every case it gets samples of the two neighbours that are farthest apart, drawn by the shipped code, each as its privacy loss: log P(y |
one) - log P(y | other), which discerns them best. That of DAWA cannot be written down: it gets the total of its answers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.privacy.accounting import gaussian_delta, laplace_scale
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import LAPLACE, Kind
from tests import HANGS
from tests.audits.auditor_installs import AUDITORIUM
from tests.audits.worst_neighbours import farthest, stronger
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline

ALARM, AT = 1e-6, 0.1
"""Probability of a false alarm of a pair, and the epsilon at which delta is compared."""
SAMPLES, AT_ONCE, SAMPLES_OF_DAWA = 100_000, 5_000, 10_000
SMALLER = {"gaussian": Fraction(1, 2), "laplace": Fraction(1, 8)}
"""The part of the scale, or of the sensitivity, that is left by a planted fault. What Laplace noise is charged for in the worst of all
outputs shows rarely where a neighbour moves many integers a little: a smaller fault would need samples without end."""
WHOLE = [name for name in CASES if name != "dawa"]
Pair = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def environment_of_the_tool() -> Path:
    return AUDITORIUM.installed()


def claim(noise: Kind) -> dict[str, float]:
    """What the audited budget promises at epsilon ``AT``: the delta of the Gaussian of rho 1/2, or of any mechanism of epsilon 1."""
    pure = (math.e - math.exp(AT)) / (math.e + 1)  # Kairouz, Oh, Viswanath 2015: randomised response is the worst of all
    return {"epsilon": AT, "delta": pure if noise == LAPLACE else gaussian_delta(1.0, AT), "alarm": ALARM}


def losses(y: np.ndarray, one: np.ndarray, other: np.ndarray, noise: Noise) -> np.ndarray:
    """log P(y | one) - log P(y | other) of outputs, (samples, rows)."""
    if noise.kind == LAPLACE:
        return np.asarray((np.abs(y - other) - np.abs(y - one)).sum(axis=1) / noise.scale)
    return np.asarray(((other - one) * (other + one - 2.0 * y)).sum(axis=1) / (2.0 * noise.scale**2))


def key(*facts: object) -> bytes:
    return hashlib.sha256(repr(facts).encode()).digest()


def smaller_sensitivity(patch: pytest.MonkeyPatch) -> None:
    scale = Kind.scale
    patch.setattr(Kind, "scale", lambda kind, squared, loss: scale(kind, int(squared * SMALLER[kind] ** 2), loss))


def sampled(name: str, folder: Path, fault: str = "") -> tuple[Pair, dict[str, float]]:
    """Losses of the two farthest neighbours, and the claim about them."""
    pipeline = Pipeline(stronger(name), folder, 4)
    with pytest.MonkeyPatch.context() as patch:
        if fault == "sensitivity":
            smaller_sensitivity(patch)
        planned = pipeline.plan("add-remove")
    noise: Noise = planned.noise
    if fault == "scale":
        noise = replace(noise, scale=int(noise.scale * SMALLER[noise.kind]))
    x = np.random.default_rng(1).integers(0, 20, int(np.prod(planned.job.measured.domain.shape)))
    sides = x, x + np.bincount(farthest(pipeline, planned, x), minlength=x.size)
    exact = [pipeline.exact_in_memory(planned, side).astype(np.float64) for side in sides]
    out = [np.zeros(0), np.zeros(0)]
    for side, start in ((side, start) for side in (0, 1) for start in range(0, SAMPLES, AT_ONCE)):
        drawn = noise.draw(key(name, side, start), count=AT_ONCE * exact[side].size).reshape(AT_ONCE, -1)
        out[side] = np.concatenate([out[side], losses(drawn + exact[side], exact[0], exact[1], noise)])
    return (out[0], out[1]), claim(noise.kind)


def sampled_of_dawa(folder: Path, fault: str = "") -> tuple[Pair, dict[str, float]]:
    """The total of the answers of two neighbours; above the epsilon where it is nearer to that of the first."""
    dawa: Any = import_module("dpdist.plugins.adaptive.dawa")
    pipeline = Pipeline(stronger("dawa"), folder, 4)
    planned: Any = pipeline.plan("add-remove")
    budget, queries = planned.job.guarantee.budget.loss, planned.job.workload.queries
    out = []
    with pytest.MonkeyPatch.context() as patch:
        if fault:
            patch.setattr(dawa, "laplace_scale", lambda sensitivity, epsilon: laplace_scale(
                int(sensitivity * SMALLER["laplace"]), epsilon))  # fmt: skip
        for side, x in enumerate((np.array([5, 1, 9, 2]), np.array([4, 1, 9, 2]))):
            drawn = (
                dawa.measure_buckets(x, queries, planned.measurement, budget, key(side, i)) for i in range(SAMPLES_OF_DAWA)
            )
            out.append(np.array([pipeline.answers_in_memory(planned, z)[-1] - 16.5 + AT for z in drawn]))
    return (out[0], out[1]), claim(LAPLACE)


def contradicted_claims(tool: Path, folder: Path, audited: dict[str, tuple[Pair, dict[str, float]]]) -> set[str]:
    """The names of those whose samples the tool finds to contradict what is claimed of them."""
    arrays = {f"{name}/{side}": pair[side] for name, (pair, _) in audited.items() for side in (0, 1)}
    np.savez(folder / "samples.npz", **arrays)
    (folder / "claims.json").write_text(json.dumps({name: stated for name, (_, stated) in audited.items()}))
    program = Path(__file__).with_name("in_auditorium.py")
    command = [str(tool / "bin" / "python"), str(program), str(folder / "samples.npz"), str(folder / "claims.json")]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "HOME": str(folder)}
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=HANGS, env={**os.environ, **quiet}
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    return set(json.loads(completed.stdout.strip().splitlines()[-1]))


@pytest.mark.large
def test_every_mechanism(environment_of_the_tool: Path, tmp_path: Path) -> None:
    audited = {name: sampled(name, tmp_path / str(place)) for place, name in enumerate(WHOLE)}
    audited["dawa"] = sampled_of_dawa(tmp_path / "dawa")
    assert contradicted_claims(environment_of_the_tool, tmp_path, audited) == set()


@pytest.mark.large
@pytest.mark.parametrize("fault", ["scale", "sensitivity"])
def test_planted_faults_are_found(fault: str, environment_of_the_tool: Path, tmp_path: Path) -> None:
    audited = {name: sampled(name, tmp_path / str(place), fault) for place, name in enumerate(WHOLE)}
    audited["dawa"] = sampled_of_dawa(tmp_path / "dawa", fault)
    assert set(audited) - contradicted_claims(environment_of_the_tool, tmp_path, audited) == set()


@pytest.mark.parametrize("name", ["identity", "laplace over weights"])
def test_losses_are_as_large_as_the_samples_say(name: str, tmp_path: Path) -> None:
    """What the tool gets: E[exp(-loss)] is 1 for outputs of the first neighbour, whatever the noise (without the tool)."""
    (one, other), _ = sampled(name, tmp_path)
    for ratios in (np.exp(-one), np.exp(other)):
        assert abs(ratios.mean() - 1.0) < 5 * ratios.std() / math.sqrt(SAMPLES)
    assert one.mean() > 0 > other.mean()
