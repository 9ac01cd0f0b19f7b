"""Counting queries written as conditions: ``age >= 65 and income == '50000+'``."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Attribute, Domain, greatest_numbers
from dpdist.domain.labels import LazySequence
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Dyadic, Matrix, Operator
from dpdist.operators.linear_operator import Entries
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRROR: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_NOTHING = "predicate {0} holds for no declared value: its count is always zero; correct it or leave it out"
DEPTH = 100
"""Levels of a predicate: what is deeper ends in Python's own limits."""
SHOWN_CHARACTERS = 80
NAMED = 5
"""Categories that a message names."""
_ALLOWED = "allowed are attribute names, numbers, texts, == != < <= > >=, in [...], and, or, not, parentheses"


def predicates(domain: Domain, expressions: Sequence[str], *, names: Sequence[str] | None = None) -> Workload:
    """One query for each expression: how many records satisfy it.

    A comparison must split the attribute's declared values: ``age < 40`` over the bins 30 to 50 is refused, since no
    sum of cells answers it.

    Args:
        domain: the attributes.
        expressions: conditions such as ``age >= 18 and branch == 'North'``.
        names: a name for each query; default: the expressions.
    Raises: InvalidInput for an expression that cannot be read, or that no sum of cells answers.
    """
    titles = list(names) if names is not None else list(expressions)
    if len(set(titles)) != len(titles) or not titles:
        raise InvalidInput("predicates need at least one expression, and distinct names")
    blocks = [_block(domain, text, title) for text, title in zip(expressions, titles, strict=True)]
    return Workload(domain, tuple(blocks))


def _block(domain: Domain, text: str, title: str) -> Block:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # such as '1 is 1': refused below
            tree = ast.parse(text.strip(), mode="eval").body
        depth = _depth(tree)
    except (SyntaxError, ValueError) as error:
        problem = getattr(error, "msg", "it holds a character that is not text")
        raise InvalidInput(f"predicate {_short(text)} cannot be read: {problem}; {_ALLOWED}") from None
    except (RecursionError, MemoryError):
        depth = DEPTH + 1
    if depth > DEPTH:
        raise InvalidInput(
            f"predicate {_short(text)} is nested more than {DEPTH} levels deep; write it flatter, for example with 'in'"
        )
    factors: dict[int, NDArray[np.bool_]] = {}
    if _conjunction(domain, tree, text, factors):
        axes = tuple(sorted(factors))
        factors = {axis: mask & _counted(domain, axis) for axis, mask in factors.items()}
        if not all(factors[axis].any() for axis in axes):
            raise InvalidInput(_NOTHING.format(_short(text)))
        rows: tuple[Operator, ...] = tuple(Dense(factors[axis][None, :].astype(np.int64)) for axis in axes)
        return Block(title, axes, rows, ((title,), *((("",),) * (len(axes) - 1))))
    axes = tuple(sorted({domain.axis(node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}))
    if not axes:
        raise InvalidInput(f"predicate {_short(text)} names no attribute; {_ALLOWED}")
    mask = np.broadcast_to(_evaluate(domain, tree, text, axes), tuple(domain.shape[axis] for axis in axes))
    for position, axis in enumerate(axes):
        mask = mask & _counted(domain, axis).reshape([-1 if k == position else 1 for k in range(len(axes))])
    if not mask.any():
        raise InvalidInput(_NOTHING.format(_short(text)))
    return Block(title, axes, (Dense(mask.reshape(1, -1).astype(np.int64)),), ((title,),))


def _counted(domain: Domain, axis: int) -> NDArray[np.bool_]:
    """Which bins of an attribute a query may count: not the one of records that are dropped wherever the attribute is asked for."""
    attribute = domain.attributes[axis]
    return np.arange(attribute.size) < attribute.shown


def _depth(tree: ast.AST) -> int:
    """Levels of a tree, without recursion."""
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}...'"


def _conjunction(domain: Domain, node: ast.expr, text: str, factors: dict[int, NDArray[np.bool_]]) -> bool:
    """Split a pure 'and' of single-attribute conditions into one mask an attribute; False if it is not one."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return all(_conjunction(domain, condition, text, factors) for condition in node.values)
    if not isinstance(node, ast.BoolOp | ast.UnaryOp | ast.Compare):
        _evaluate(domain, node, text, ())
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if len(names) != 1:
        return False
    axis = domain.axis(names.pop())
    mask = _evaluate(domain, node, text, (axis,))
    factors[axis] = factors[axis] & mask if axis in factors else mask
    return True


def _evaluate(domain: Domain, node: ast.expr, text: str, axes: tuple[int, ...]) -> NDArray[np.bool_]:
    if isinstance(node, ast.BoolOp):
        masks = [_evaluate(domain, value, text, axes) for value in node.values]
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        combined = masks[0]
        for operand in masks[1:]:
            combined = np.asarray(join(combined, operand), dtype=bool)
        return combined
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_evaluate(domain, node.operand, text, axes)
    if isinstance(node, ast.Compare):
        mask: NDArray[np.bool_] | None = None
        left_operand = node.left
        for comparison, right_operand in zip(node.ops, node.comparators, strict=True):
            step = _compare(domain, left_operand, comparison, right_operand, text, axes)
            mask = step if mask is None else mask & step
            left_operand = right_operand
        assert mask is not None
        return mask
    raise InvalidInput(
        f"predicate {_short(text)} holds {_short(ast.unparse(node))}, which is not part of the language; {_ALLOWED}"
    )


def _compare(
    domain: Domain, left_operand: ast.expr, comparison: ast.cmpop, right_operand: ast.expr, text: str, axes: tuple[int, ...]
) -> NDArray[np.bool_]:
    if not isinstance(left_operand, ast.Name) and isinstance(right_operand, ast.Name) and type(comparison) in _MIRROR:
        left_operand, right_operand, comparison = right_operand, left_operand, _MIRROR[type(comparison)]()
    if not isinstance(left_operand, ast.Name):
        raise InvalidInput(f"predicate {_short(text)}: one side of a comparison must be an attribute; {_ALLOWED}")
    axis = domain.axis(left_operand.id)
    attribute = domain.attributes[axis]
    try:
        value = ast.literal_eval(right_operand)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise InvalidInput(
            f"predicate {_short(text)}: {left_operand.id!r} must be compared with a value; {_ALLOWED}"
        ) from None
    mask = _mask(attribute, comparison, value, text)
    shape = [1] * len(axes)
    shape[axes.index(axis)] = attribute.size
    return mask.reshape(shape)


SIGNS: dict[str, ast.cmpop] = {
    "=": ast.Eq(),
    "==": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}
"""How conditions compare."""


def satisfied(attribute: Attribute, sign: str, value: Any) -> NDArray[np.bool_]:
    """The values of an attribute that satisfy a comparison. Raises: InvalidInput where it cuts through a bin or names no value."""
    return _mask(attribute, SIGNS[sign], value, f"{attribute.name} {sign} {value}")


def _mask(attribute: Attribute, comparison: ast.cmpop, value: Any, text: str) -> NDArray[np.bool_]:
    if isinstance(comparison, ast.In | ast.NotIn):
        if not isinstance(value, list | tuple | set) or not value:
            raise InvalidInput(f"predicate {_short(text)}: 'in' needs a list of values")
        mask = np.any([_mask(attribute, ast.Eq(), item, text) for item in value], axis=0)
        return np.asarray(~mask if isinstance(comparison, ast.NotIn) else mask, dtype=bool)
    if type(comparison) not in _COMPARE:
        raise InvalidInput(f"predicate {_short(text)} compares by 'is'; {_ALLOWED}")
    equal = isinstance(comparison, ast.Eq | ast.NotEq)
    if equal and isinstance(value, str) and value in attribute.extra:
        is_label = np.arange(attribute.size) == attribute.values + attribute.extra.index(value)
        return np.asarray(is_label if isinstance(comparison, ast.Eq) else ~is_label, dtype=bool)
    mask = _value_mask(attribute, comparison, value, text)
    extra_bins = attribute.size - attribute.values
    return np.concatenate([mask, np.full(extra_bins, isinstance(comparison, ast.NotEq))])


def _value_mask(attribute: Attribute, comparison: ast.cmpop, value: Any, text: str) -> NDArray[np.bool_]:
    """Which of the declared values a comparison picks."""
    if attribute.categories:
        if not isinstance(comparison, ast.Eq | ast.NotEq):
            raise InvalidInput(
                f"predicate {_short(text)}: the categories of {attribute.name!r} have no order; use == != or in"
            )
        if str(value) not in attribute.categories:
            alike = did_you_mean(str(value), attribute.categories) or f"; declared are {_named(attribute.categories)}"
            raise InvalidInput(
                f"predicate {_short(text)}: {value!r} is not a declared category of {attribute.name!r}{alike}"
            )
        is_category = np.array([category == str(value) for category in attribute.categories])
        return is_category if isinstance(comparison, ast.Eq) else ~is_category
    return _bin_mask(attribute, comparison, value, text)


def _named(categories: Sequence[str]) -> str:
    """Some of an attribute's categories, for a message."""
    omitted = len(categories) - NAMED
    return ", ".join(map(repr, islice(categories, NAMED))) + (f" and {omitted:,} more" if omitted > 0 else "")


def _greatest(attribute: Attribute, low: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The greatest value in every bin, where values are whole numbers."""
    if attribute.line is not None:
        return greatest_numbers(attribute)
    return low if attribute.unit_steps else None


def _bin_mask(attribute: Attribute, comparison: ast.cmpop, value: Any, text: str) -> NDArray[np.bool_]:
    if attribute.times is not None and isinstance(value, str):
        value = attribute.times.number(value)
    elif isinstance(value, bool) or not isinstance(value, int | float) or attribute.times is not None:
        kind = "is numeric" if attribute.times is None else "has dates"
        raise InvalidInput(f"predicate {_short(text)}: {attribute.name!r} {kind} and cannot be compared with {value!r}")
    edges = np.asarray(attribute.edges, dtype=np.float64)
    low, high = edges[:-1], edges[1:]
    whole = _greatest(attribute, low)
    if whole is not None and float(value).is_integer():
        compare = _COMPARE[type(comparison)]
        mask = np.asarray(compare(low, value), dtype=bool)
        inside = isinstance(comparison, ast.Eq | ast.NotEq) & (low < value) & (value < whole)
        if not np.any((mask != compare(whole, value)) | inside):
            return mask
    if isinstance(comparison, ast.Lt | ast.GtE) and (bool(np.any(edges == value)) or value < edges[0] or value > edges[-1]):
        below = high <= value
        return np.asarray(below if isinstance(comparison, ast.Lt) else ~below, dtype=bool)
    raise InvalidInput(
        f"predicate {_short(text)} cuts through a bin of {attribute.name!r}: compare with < or >= at one of its edges, "
        f"{', '.join(f'{e:g}' for e in edges[:12])}{' ...' if edges.size > 12 else ''}"
    )


MOST_BITS = 34
"""Attributes of one formula: 2^34 counts, 128 GiB in the store."""


@dataclass(frozen=True)
class TruthTable(Entries):
    """1 for the bit strings of ``bits`` bits that have all bits of some mask, else 0."""

    bits: int
    masks: tuple[int, ...]

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(2**self.bits)

    def read(self, start: int, stop: int) -> Matrix:
        cells = np.arange(start, stop)
        holds = np.zeros(cells.size, dtype=bool)
        for mask in self.masks:
            holds |= (cells & mask) == mask
        return holds.astype(np.float64)

    @property
    def integral(self) -> bool:
        return True


class Negations(LazySequence[str]):
    """The formula in words for every combination of values that stand in its attributes' place; made when it is read."""

    def __init__(self, terms: tuple[tuple[int, ...], ...], attributes: tuple[Attribute, ...]) -> None:
        self.terms, self.attributes = terms, attributes

    def __len__(self) -> int:
        return int(2 ** len(self.attributes))

    def value_at(self, index: int) -> str:
        last_bit = len(self.attributes) - 1
        texts = []
        for term in self.terms:
            values = [
                f"{self.attributes[i].name} {self.attributes[i].labels[1 - (index >> (last_bit - i) & 1)]}" for i in term
            ]
            texts.append(" and ".join(values))
        return texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)


def dnf(domain: Domain | int, terms: Sequence[Sequence[str]], *, name: str | None = None) -> Workload:
    """Counts of records that satisfy a disjunction of conjunctions, for every way to negate its attributes.

    Args:
        domain: a domain, or the number of binary attributes x0, x1, ... of an anonymous one.
        terms: attributes of each conjunction; row 0 asks for their second values, row s for the first one where s has a bit.
        name: of the group of queries; default: the formula.
    Returns: a workload of 2^d queries over the d attributes that the terms name, in the order of the domain.
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape((2,) * domain)
    if not terms or any(not term or len(set(term)) != len(term) for term in terms):
        raise InvalidInput(f"a formula needs terms of distinct attributes, found {[list(term) for term in terms]}")
    axes = tuple(sorted({whole.axis(attribute) for term in terms for attribute in term}))
    attributes = tuple(whole.attributes[axis] for axis in axes)
    non_binary = next((candidate for candidate in attributes if (candidate.size, candidate.shown) != (2, 2)), None)
    if non_binary is not None:
        raise InvalidInput(
            f"a formula takes attributes of two values, and {non_binary.name!r} has {non_binary.shown}; write 'predicates' instead"
        )
    if len(axes) > MOST_BITS:
        raise InvalidInput(f"a formula takes up to {MOST_BITS} attributes, found {len(axes)}; split it into several")
    term_positions = tuple(tuple(sorted(axes.index(whole.axis(attribute)) for attribute in term)) for term in terms)
    table = TruthTable(
        len(axes), tuple(sum(1 << (len(axes) - 1 - position) for position in term) for term in term_positions)
    )
    function = Dyadic(table if table.size > whole.sizes.listed_values else table.values)
    title = name or " or ".join(" and ".join(term) for term in terms)
    return Workload(whole, (Block(title, axes, (function,), (Negations(term_positions, attributes),)),))
