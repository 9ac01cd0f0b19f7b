"""The files that a reader gets, and where they go."""

from __future__ import annotations

from pathlib import Path

from dpdist.grids.base import Answers
from dpdist.page import report
from dpdist.page.content import Content
from dpdist.privacy.ledger import Budget
from dpdist.release.context import Context
from dpdist.release.plan import Plan
from dpdist.state import published_at


def publish(context: Context, planned: Plan, answers: Answers, budget: Budget, measurements: dict[str, str]) -> Path | str:
    """The files a reader gets; a finished folder is left as it is.

    Args:
        measurements: digest of the noisy integers of this release and of those that join its estimate, by release.
    """
    spec = planned.spec
    content = Content(
        release=spec.release,
        title=spec.title or spec.release,
        workload=planned.workload,
        answer=answers.answer,
        error=answers.error,
        half_width=answers.half_width,
        certificate={**planned.certificate(budget), "measurements": measurements},
        formats=spec.output.formats,
        sizes=context.store.sizes,
    )
    return report.write(content, published_at(spec.release, spec.output.folder))
