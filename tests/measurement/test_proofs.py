"""The proofs of docs/proofs, checked by Coq; and what they take from the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dpdist.measurement.integer_terms import IntegerTerm
from dpdist.measurement.sensitivity import group_contribution
from dpdist.measurement.sensitivity.column_norms import exact_norms

PROOFS = Path(__file__).parents[2] / "docs" / "proofs"
FILES = sorted(PROOFS.glob("*.v"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_coq_accepts_it(file: Path, tmp_path: Path) -> None:
    """Without axioms of its own: nothing is admitted, and what is real numbers' in Coq's library is all that is assumed."""
    coq = shutil.which("coqc")
    if coq is None:
        pytest.skip("needs Coq: apt-get install coq")
    assert not re.search(r"\b(Admitted|Axiom|Parameter|Conjecture|admit)\b", file.read_text())
    shutil.copy(file, tmp_path)
    done = subprocess.run([coq, "-q", file.name], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_coq_refuses_a_smaller_bound(tmp_path: Path) -> None:
    """Three times the largest column in place of four, for a replaced record: the checker is one."""
    coq = shutil.which("coqc")
    if coq is None:
        pytest.skip("needs Coq: apt-get install coq")
    text = (PROOFS / "Dense.v").read_text()
    assert text.count("<= 4 * most") == 1
    (tmp_path / "Dense.v").write_text(text.replace("<= 4 * most", "<= 3 * most"))
    done = subprocess.run([coq, "-q", "Dense.v"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode != 0


def test_the_proofs_are_of_what_the_code_computes() -> None:
    """The definitions that Coq is given, in Python: halves of 16 bits and rounding half up."""
    state = np.random.default_rng(0)
    rows = state.integers(-(2**31), 2**31, (7, 5))
    high, low = rows >> 16, rows & 0xFFFF
    assert (rows == 2**16 * high + low).all()
    squares = [sum(int(v) ** 2 for v in column) for column in rows.T]
    parts = [sum(int(a) * int(b) for a, b in zip(h, k, strict=True)) for h, k in zip(high.T, low.T, strict=True)]
    joined = [
        2**32 * sum(int(v) ** 2 for v in h) + 2**17 * part + sum(int(v) ** 2 for v in k)
        for h, part, k in zip(high.T, parts, low.T, strict=True)
    ]
    assert squares == joined == exact_norms(rows).tolist()
    for shift in (1, 5, 20):
        factor = state.integers(-(2**30), 2**30, (1, 1))
        table = state.integers(0, 2**20, 1)
        value = int(factor[0, 0]) * int(table[0])
        measured = IntegerTerm((0,), (factor,), 1, shift).measure(table)
        assert measured.tolist() == [(2 * value + 2**shift) // 2 ** (shift + 1)]


@pytest.mark.parametrize("name", [file.name for file in FILES])
def test_every_proof_is_listed(name: str) -> None:
    assert f"`{name}`" in (PROOFS.parent / "stability.md").read_text()


def test_the_margin_covers_the_diagonal_that_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that had to be raised far, too: c is eight times (n + 2) 2^-53 of what is factorised, not of what was begun with."""
    cells, scale, factorised = 50, 2**30, list[np.ndarray]()
    cholesky = np.linalg.cholesky

    def watched(matrix: np.ndarray) -> np.ndarray:
        factorised.append(matrix)
        return np.asarray(cholesky(matrix))

    monkeypatch.setattr(np.linalg, "cholesky", watched)
    whole = group_contribution._prove_diagonal(np.full((cells, cells), scale), scale, np.zeros(cells))
    margin = (whole - scale).astype(float) / scale - np.diag(factorised[-1])
    assert len(factorised) > 10
    assert (margin >= 0.99 * 8 * (cells + 2) * 2.0**-53 * float(whole.sum()) / scale).all()
    assert float(whole.max()) / scale >= cells * (1 - 1e-9)  # one is the only eigenvector: n is what it takes
