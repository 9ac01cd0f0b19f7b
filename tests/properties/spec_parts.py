"""Parts of specs that several properties are tested over."""

from __future__ import annotations

from typing import Any

PURE: dict[str, Any] = {"budget": {"epsilon": 0.5}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}
AGES: dict[str, Any] = {"domain": {"age": {"from": 0, "to": 11}}, "workload": [{"cdf": {"of": "age"}}]}
SERIES: dict[str, Any] = {"workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}]}
FORMULAS: dict[str, Any] = {
    "domain": {name: {"categories": ["no", "yes"]} for name in ("p", "q", "r")},
    "workload": [{"dnf": {"terms": [["p"], ["q", "r"]]}}],
}
