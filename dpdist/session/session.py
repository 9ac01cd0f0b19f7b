"""A session: a data set, its cap and whom it protects; domain and questions become the same job that a YAML spec compiles to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.digests import compute_digest
from dpdist.domain import Domain
from dpdist.errors import InvalidSpec
from dpdist.session.attribute_types import DeclaredValues, declare_attribute
from dpdist.session.declarations import Budget, Persons, Question, Records, check_kind
from dpdist.session.planned_release import PlannedRelease


class Session:
    """Releases of one data set.

    Attributes:
        attributes: those that were declared last, by their names.
    """

    def __init__(self, dataset: str, cap: Budget, protect: Persons | Records | None = None, **more: Any) -> None:
        """Name the data set.

        Args:
            dataset: its name in the ledger.
            cap: the most that all its releases may spend together; the same in every session of the data set.
            protect: whom the guarantee protects. Default: every record by itself.
            more: other keys of all its specs, such as ``neighbours``.
        Raises: InvalidSpec.
        """
        check_kind("'cap'", cap, Budget, "dp.Budget(epsilon=2, delta=1e-6)")
        if protect is not None:
            check_kind("'protect'", protect, (Persons, Records), "dp.Persons('card', most_records=5) or dp.Records()")
        self.dataset, self.cap, self.protect, self.more = dataset, cap, protect or Records(), more
        self.attributes: dict[str, DeclaredValues] = {}

    def domain(self, meant: Mapping[str, Any] | Domain | None = None, /, **attributes: Any) -> Domain:
        """Declare the attributes of the records, each with all its values, in place of those declared before.

        Args:
            meant: a ``dpdist.Domain``, or attributes by names that are no words of Python.
            attributes: see ``dpdist.session.attribute_types.declare_attribute``.
        Returns: the domain, without levels.
        Raises: InvalidSpec, InvalidInput.
        """
        named = (
            {declared.name: declared for declared in meant.attributes} if isinstance(meant, Domain) else dict(meant or {})
        )
        self.attributes = {name: declare_attribute(name, declared) for name, declared in {**named, **attributes}.items()}
        return Domain(tuple(declared.bins(name) for name, declared in self.attributes.items()))

    def plan(self, *questions: Question, budget: Budget, release: str | None = None, **more: Any) -> PlannedRelease:
        """Plan a release; nothing is read, drawn or charged.

        Args:
            release: its id, which the ledger charges once. Default: the data set with a digest of all that is asked, so that the same
                plan is the same release and another plan another one.
            more: other keys of a spec, such as ``title``, ``noise``, ``postprocess`` and ``stream``. ``left_out={}`` spends a twentieth
                of the budget on what the bounds leave out.
        Raises: InvalidSpec.
        """
        if not self.attributes:
            raise InvalidSpec("the session has no domain yet; declare it with 'domain'")
        if not questions or not all(isinstance(entry, Question) for entry in questions):
            raise InvalidSpec("a plan is of one or more questions, such as dp.marginals(1, 2)")
        check_kind("'budget'", budget, Budget, "dp.Budget(epsilon=1)")
        amounts = {name: entry for question in questions for name, entry in question.amounts.items()}
        conflicts = (name for question in questions for name, entry in question.amounts.items() if entry != amounts[name])
        if (name := next(conflicts, None)) is not None:
            raise InvalidSpec(
                f"two questions declare different amounts of {name!r}; every column has one range, step and unit"
            )
        records = {**more.pop("records", {}), **({"person": self.protect.content} if self.protect.content else {})}
        content = {
            **({"records": records} if records else {}),
            "domain": {name: entry.content for name, entry in self.attributes.items()},
            **({"sums": amounts} if amounts else {}),
            "workload": [entry.entry for entry in questions],
            "budget": budget.content,
            "ledger": {"dataset": self.dataset, "cap": self.cap.content},
            **self.more,
            **more,
        }
        name = release or f"{self.dataset}-{compute_digest('session', content)[:12]}"
        return PlannedRelease({"release": name, **content})
