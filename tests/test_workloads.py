from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Permuted, Total
from dpdist.size_limits import Sizes
from dpdist.workloads import (
    all_ranges,
    boxes,
    discrete,
    explicit,
    integer_basis,
    marginal_queries,
    marginals,
    permuted,
    predicates,
    prefix,
    random_marginals,
    random_ranges,
    range_marginals,
    ranges,
    related,
    relative,
    two_step_ranges,
    uniform_predicates,
    union,
)
from dpdist.workloads.integer_basis import column_codes
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.range_workloads import cdf, ranges_of

DOMAIN = Domain(
    (
        Attribute("age", edges=tuple(range(8))),
        Attribute("sex", categories=("m", "f")),
        Attribute("work", categories=("a", "b", "c")),
        Attribute("unused", categories=("x", "y")),
    )
)


def mixed() -> object:
    return union(
        marginals(DOMAIN, (0, 1), among=("age", "sex", "work")),
        cdf(DOMAIN, "age", ("sex",)),
        ranges_of(DOMAIN, ("age",), intervals={"age": [(0, 2), (3, 6)]}),
        predicates(DOMAIN, ["age >= 3 and sex == 'm'", "sex == 'm' or work in ['a', 'b']"]),
        weights=(1.0, 2.0, 0.5, 1.0),
    )


def test_rows_of_a_mixed_workload_by_hand() -> None:
    workload = marginals(DOMAIN, 1, among=("sex",))
    age, sex, _work, _unused = np.indices(DOMAIN.shape)
    np.testing.assert_array_equal(
        workload.rows(slice(0, 2)), np.array([(sex == 0).ravel(), (sex == 1).ravel()], dtype=float)
    )
    by = cdf(DOMAIN, "age", ("sex",))
    assert by.blocks[0].row_labels(1, 2) == [("up to 0", "f")]
    np.testing.assert_array_equal(by.rows(slice(5, 6))[0], ((age <= 2) & (sex == 1)).ravel().astype(float))
    one = predicates(DOMAIN, ["2 <= age < 5 and not work == 'c'"])
    work = np.indices(DOMAIN.shape)[2]
    np.testing.assert_array_equal(one.rows(slice(0, 1))[0], ((age >= 2) & (age < 5) & (work != 2)).ravel().astype(float))


def test_basis_spans_the_workload_with_integers() -> None:
    workload = mixed()
    basis = integer_basis(workload)
    dense = basis.operator.dense()
    assert set(np.unique(dense)) == {0.0, 1.0}
    assert np.linalg.matrix_rank(dense) == basis.rank < workload.domain.cells
    coordinates = basis.coordinates(0, workload.shape[0], weighted=True)
    np.testing.assert_allclose(coordinates @ dense, workload.operator.dense(), atol=1e-12)
    plain = basis.coordinates(0, workload.shape[0], weighted=False)
    np.testing.assert_allclose(plain @ dense, workload.unweighted.dense(), atol=1e-12)
    np.testing.assert_allclose(basis.gram(), coordinates.T @ coordinates, atol=1e-10)
    cells = basis.representatives
    np.testing.assert_array_equal(basis.columns(cells), dense[:, cells])
    assert len({tuple(column) for column in dense.T}) == cells.size == len({tuple(c) for c in dense[:, cells].T})


@pytest.mark.parametrize("chunk", [1, 5, 84, 100])
def test_basis_products_do_not_depend_on_chunks(chunk: int) -> None:
    operator = integer_basis(mixed()).operator
    x = np.random.default_rng(0).integers(0, 2**40, operator.shape[1])
    total = sum(operator.matvec_cells(start, x[start : start + chunk]) for start in range(0, x.size, chunk))
    np.testing.assert_array_equal(total, operator.dense().astype(np.int64) @ x)


def test_full_rank_workloads_use_the_identity() -> None:
    assert integer_basis(prefix(5)).operator is None
    assert integer_basis(explicit(np.eye(4))).operator is None
    assert integer_basis(marginals((3, 4), 2)).operator is None


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_basis_of_random_unions(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    domain = Domain.of_shape(tuple(sizes))
    subsets = data.draw(st.lists(st.sets(st.sampled_from(domain.names)), min_size=1, max_size=3))
    workload = listed_marginals(domain, [tuple(s) for s in subsets])
    if data.draw(st.booleans()):
        workload = union(workload, ranges_of(domain, (domain.names[0],)))
    if data.draw(st.booleans()):
        rows = data.draw(st.lists(st.integers(-1, 1), min_size=domain.cells, max_size=domain.cells))
        if any(rows):  # rows that are zero everywhere are refused
            workload = union(workload, explicit(np.array([rows]), domain))
    basis = integer_basis(workload)
    dense = np.eye(domain.cells) if basis.operator is None else basis.operator.dense()
    coordinates = basis.coordinates(0, workload.shape[0], weighted=True)
    np.testing.assert_allclose(coordinates @ dense, workload.operator.dense(), atol=1e-12)


def test_generators_match_the_prototypes() -> None:
    state = np.random.RandomState(0)
    ab = np.sort(state.randint(0, 16, (2, 5)), axis=0)
    j = np.arange(16)
    expected = ((j >= ab[0][:, None]) & (j <= ab[1][:, None])).astype(float)
    np.testing.assert_array_equal(random_ranges(16, 5).rows(slice(None)), expected)
    np.testing.assert_array_equal(
        discrete(6, 4).rows(slice(None)), np.where(np.random.RandomState(0).rand(4, 6) < 0.02, 1.0, -1.0)
    )
    for rank in (1, 4, 9):
        assert np.linalg.matrix_rank(related(12, 9, rank).rows(slice(None))) == rank


def test_grams_in_closed_form() -> None:
    n = 9
    i = np.arange(n)
    np.testing.assert_array_equal(prefix(n).gram(), n - np.maximum.outer(i, i))
    np.testing.assert_array_equal(all_ranges(n).gram(), (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i)))
    box = ranges((3, 4))
    np.testing.assert_allclose(box.gram(), box.rows(slice(None)).T @ box.rows(slice(None)))


def test_fingerprint_sees_weights_and_rows_only() -> None:
    a = union(marginals(DOMAIN, 1), cdf(DOMAIN, "age"))
    b = union(marginals(DOMAIN, 1), cdf(DOMAIN, "age"), weights=(1.0, 2.0))
    assert a.fingerprint == union(marginals(DOMAIN, 1), cdf(DOMAIN, "age")).fingerprint
    assert a.fingerprint != b.fingerprint


@pytest.mark.parametrize(
    ("expression", "match"),
    [
        ("age < 0", "holds for no declared value"),
        ("age < 3 and age >= 3 and sex == 'm'", "holds for no declared value"),
        ("age < 0 or work not in ['a', 'b', 'c']", "holds for no declared value"),
        ("age >= 3 and", "cannot be read"),
        ("__import__('os').system('true')", "not part of the language"),
        ("height > 3", "does not exist"),
        ("sex > 'm'", "no order"),
        ("sex == 'x'", "not a declared category of 'sex'; declared are 'm', 'f'$"),
        ("age == 'x'", "cannot be compared"),
        ("age", "not part of the language"),
        ("1 < 2", "names no attribute|must be an attribute"),
        ("age + 1 > 3", "must be an attribute"),
        ("age + 1", r"holds 'age \+ 1', which is not part of the language"),
        ("sex is 'm'", "compares by 'is'"),
        ("age > sex", "compared with a value"),
        ("age in []", "list of values"),
    ],
)
def test_predicates_refuse(expression: str, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        predicates(DOMAIN, [expression])


def test_predicate_that_cuts_a_bin_is_refused() -> None:
    domain = Domain((Attribute("age", edges=(0, 18, 65, 120)),))
    assert predicates(domain, ["age >= 18"]).rows(slice(0, 1)).tolist() == [[0.0, 1.0, 1.0]]
    with pytest.raises(InvalidInput, match="cuts through a bin"):
        predicates(domain, ["age >= 20"])


@pytest.mark.parametrize(
    "build",
    [
        lambda: marginals(DOMAIN, 9),
        lambda: marginals(DOMAIN, 1, among=("nope",)),
        lambda: union(prefix(3), prefix(4)),
        lambda: union(prefix(3), weights=(0.0,)),
        lambda: explicit(np.ones((2, 3)), DOMAIN),
        lambda: explicit(np.zeros((0, 3))),
        lambda: explicit(np.ones((2, 3)), names=("a", "a")),
        lambda: related(4, 4, 9),
        lambda: cdf(DOMAIN, "age", ("age",)),
    ],
)
def test_refusals(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()


def test_generators_are_what_they_say() -> None:
    boxes = two_step_ranges((6, 5), 200, seed=1)
    rows = boxes.rows(slice(0, 200)).reshape(200, 6, 5)
    for row in rows:
        along = [np.flatnonzero(row.any(axis=axis)) for axis in (1, 0)]
        assert all((np.diff(cells) == 1).all() for cells in along)
        assert row.sum() == along[0].size * along[1].size
    lengths = rows.any(axis=2).sum(axis=1)
    assert stats.chisquare(np.bincount(lengths, minlength=7)[1:]).pvalue > 1e-6
    some = random_marginals((2, 3, 4), 3, seed=2)
    assert len({block.axes for block in some.blocks}) == len(some.blocks) == 3
    counts = marginal_queries((2, 3, 4), 20, seed=3).rows(slice(0, 20))
    assert counts.shape == (20, 24)
    assert sorted(set(counts.sum(axis=1))) in ([2.0, 3.0, 4.0], [2.0, 3.0], [2.0, 4.0], [3.0, 4.0])
    assert len({row.tobytes() for row in counts}) == 20
    fair = uniform_predicates(64, 100, seed=4).rows(slice(0, 100))
    assert abs(fair.mean() - 0.5) < 6 * 0.5 / np.sqrt(6400)
    for build in (
        lambda: random_marginals((2, 2), 4),
        lambda: marginal_queries((2, 2), 5),
        lambda: range_marginals((2, 2), 3),
    ):
        with pytest.raises(InvalidInput):
            build()


def test_permuted_queries_are_the_same_ones() -> None:
    inner = ranges((3, 4))
    outer = permuted(inner, seed=5)
    order = np.random.RandomState(5).permutation(12)
    np.testing.assert_array_equal(outer.rows(slice(0, 60))[:, order], inner.rows(slice(0, 60)))
    np.testing.assert_array_equal(outer.gram(), outer.rows(slice(0, 60)).T @ outer.rows(slice(0, 60)))
    values = np.linalg.eigvalsh(outer.gram())
    np.testing.assert_allclose(values, np.linalg.eigvalsh(inner.gram()), atol=1e-9)


def test_range_marginals() -> None:
    domain = Domain(
        (Attribute("a", edges=(0, 1, 2, 3)), Attribute("b", categories=("x", "y")), Attribute("c", edges=(0, 1, 2)))
    )
    workload = range_marginals(domain, 2)
    assert [block.queries for block in workload.blocks] == [6 * 2, 6 * 3, 3 * 2]
    assert workload.shape[1] == 12
    assert range_marginals(domain, 1, among=("b",)).shape[0] == 2
    x = np.arange(12)
    first = workload.matvec(x)[0]  # a 0 .. 0, b x
    assert first == x.reshape(3, 2, 2)[0, 0].sum()


def test_equal_columns_are_found_block_by_block() -> None:
    state = np.random.default_rng(0)
    rows = state.integers(0, 2, (300, 5))[:, [0, 1, 0, 2, 3, 1, 4, 4]]
    for block_bytes in (8 * 8 * 7, 2**20):
        codes = column_codes(Dense(rows), block_bytes)
        assert (codes[:, None] == codes).tolist() == [[bool((a == b).all()) for b in rows.T] for a in rows.T]
    order = np.array([2, 0, 1])
    turned = column_codes(Permuted(Dense(np.array([[1, 1, 0]])), order))
    assert turned[2] == turned[0] != turned[1]
    assert column_codes(Total(3)).tolist() == [0, 0, 0]


def test_factors_too_large_to_write_down() -> None:
    """All ranges of one attribute beside another attribute: the basis keeps them as an operator, with the same rows."""
    attributes = (Attribute("a", edges=tuple(range(13))), Attribute("b", categories=("x", "y", "z")))
    domains = [Domain(attributes), Domain(attributes, Sizes(factor_entries=10))]
    workload, same = (union(ranges_of(d, ("a",)), listed_marginals(d, [("b",)])) for d in domains)
    small, large = integer_basis(workload), integer_basis(same)
    m = workload.shape[0]
    np.testing.assert_array_equal(large.coordinates(0, m, weighted=True), small.coordinates(0, m, weighted=True))
    np.testing.assert_allclose(large.gram(), small.gram())


def test_boxes() -> None:
    listed = [[(0, 2), (1, 1)], [(3, 6), (0, 2)]]
    workload = boxes(DOMAIN, ("age", "work"), listed)
    swapped = boxes(DOMAIN, ("work", "age"), [[box[1], box[0]] for box in listed])
    rows = workload.rows(slice(0, 2)).reshape(2, *DOMAIN.shape)
    for row, (ages, works) in zip(rows, listed, strict=True):
        expected = np.zeros(DOMAIN.shape)
        expected[ages[0] : ages[1] + 1, :, works[0] : works[1] + 1] = 1
        np.testing.assert_array_equal(row, expected)
    np.testing.assert_array_equal(swapped.rows(slice(0, 2)), workload.rows(slice(0, 2)))
    assert workload.blocks[0].row_labels(0, 1)[0] == ("age 0 .. 2, work b .. b",)
    for wrong in ([], [[(0, 1)]], [[(2, 1), (0, 0)]], [[(0, 9), (0, 0)]]):
        with pytest.raises(InvalidInput):
            boxes(DOMAIN, ("age", "work"), wrong)


def test_relative_rows_have_unit_length_in_every_form() -> None:
    plain = mixed()
    scaled = relative(plain)
    rows = scaled.operator.dense()
    np.testing.assert_allclose((rows**2).sum(axis=1), [b.weight**2 for b in plain.blocks for _ in range(b.queries)])
    np.testing.assert_allclose(rows, scaled.weights[:, None] * plain.unweighted.dense(), atol=1e-12)
    np.testing.assert_array_equal(scaled.unweighted.dense(), plain.unweighted.dense())
    np.testing.assert_allclose(scaled.gram(), rows.T @ rows, atol=1e-10)
    basis = integer_basis(scaled)
    coordinates = basis.coordinates(0, scaled.shape[0], weighted=True)
    np.testing.assert_allclose(coordinates @ basis.operator.dense(), rows, atol=1e-12)
    np.testing.assert_allclose(basis.gram(), coordinates.T @ coordinates, atol=1e-10)
    assert scaled.fingerprint != plain.fingerprint
    mixed_up = permuted(relative(ranges((3, 2))))
    np.testing.assert_allclose((mixed_up.operator.dense() ** 2).sum(axis=1), 1.0)
    with pytest.raises(InvalidInput, match="row 0 counts no cell"):
        relative(explicit(np.array([[0, 0], [1, 1]])))


def test_rows_that_ask_nothing() -> None:
    with pytest.raises(InvalidInput, match="nothing to answer"):
        explicit(np.zeros((2, 3)))


def test_groups_stand_in_the_order_of_the_domain_whatever_their_names() -> None:
    domain = Domain((Attribute("b", edges=(0, 1, 2, 3)), Attribute("a", categories=("x", "y"))))
    of_b, of_a = cdf(domain, "b", ("a",)), listed_marginals(domain, [("b", "a")])
    expected = np.kron(np.tril(np.ones((3, 3))), np.eye(2))
    np.testing.assert_array_equal(of_b.operator.dense(), expected)
    np.testing.assert_array_equal(of_a.operator.dense(), np.eye(6))
    for (block,) in (of_b.blocks, of_a.blocks):
        assert block.axes == (0, 1)
        assert [len(each) for each in block.labels] == [3, 2]


def test_the_total_is_one_of_several_marginals() -> None:
    domain = Domain((Attribute("b", edges=(0, 1, 2, 3)), Attribute("a", categories=("x", "y"))))
    found = listed_marginals(domain, [("a",), (), ("b",)])
    counts = np.arange(6)
    assert found.operator.dense() @ counts == pytest.approx([6, 9, 15, 1, 5, 9])
