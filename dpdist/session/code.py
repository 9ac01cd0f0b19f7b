"""A planned release as Python statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dpdist.session.parts import Persons

_SAID = ("release", "records", "domain", "workload", "budget", "ledger")
"""Keys of a spec that have a place of their own in the statements."""


def python_of(content: Mapping[str, Any]) -> str:
    """Statements that plan what a spec asks for, and publish it."""
    ledger, records = dict(content["ledger"]), dict(content.get("records") or {})
    protect = _protect(dict(records.pop("person", None) or {}))
    more: dict[str, Any] = {"records": records} if records else {}
    more |= {key: each for key, each in content.items() if key not in _SAID}
    more |= {"ledger": ledger} if set(ledger) - {"dataset", "cap"} else {}
    lines = [
        "import dpdist as dp",
        "",
        f"session = dp.Session({ledger['dataset']!r}, cap={_budget(ledger['cap'])}{protect})",
        "session.domain(",
        "    {",
        *(f"        {name!r}: {each!r}," for name, each in content["domain"].items()),
        "    }",
        ")",
        "planned = session.plan(",
        *(f"    dp.question(**{entry!r})," for entry in content["workload"]),
        f"    budget={_budget(content['budget'])},",
        f"    release={content['release']!r},",
        *(f"    {key}={each!r}," for key, each in more.items()),
        ")",
        "release = planned.publish(records)",
    ]
    return "\n".join(lines) + "\n"


def _budget(content: Mapping[str, Any]) -> str:
    return f"dp.Budget({', '.join(f'{key}={each!r}' for key, each in content.items())})"


def _protect(person: dict[str, Any]) -> str:
    if not person:
        return ""
    kind, own = ("Persons", {each.name for each in fields(Persons)}) if "column" in person else ("Records", {"most_records"})
    given = [f"{key}={person.pop(key)!r}" for key in tuple(person) if key in own]
    return f", protect=dp.{kind}({', '.join([*given, *([f'more={person!r}'] if person else [])])})"
