"""The noisy measurement, of which readers ask more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpdist.page import measurement
from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.places import Written


class PublishedMeasurement(Output):
    """The measurement with its strategy, where it is published."""

    files = r"measurement\.npz"
    about = (
        "The noisy measurement with its strategy. With [`dpdist ask`](../guides/ask.md), readers compute answers from it "
        "that the release did not publish."
    )

    def write(self, release: Unfinished) -> Sequence[Written]:
        found = release.content.measurement
        if found is None:
            return []
        return [release.place.fill(measurement.FILE, partial(measurement.write, found, release.content.release))]
