"""The noisy measurement, of which readers ask more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpdist.content import measurement_file
from dpdist.content.destination import Written
from dpdist.publish.output_file import Output, Unfinished


class PublishedMeasurement(Output):
    """The measurement with its strategy, where it is published."""

    files = r"(measurement|horizon)\.npz"
    about = (
        "The noisy measurement with its strategy. With [`dpdist ask`](../guides/ask.md), readers compute answers from it "
        "that the release did not publish. `horizon.npz` says the same of the whole horizon of a stream, of which its errors are, without "
        "a value yet."
    )

    def write(self, release: Unfinished) -> Sequence[Written]:
        content = release.content
        return [
            release.place.fill(name, partial(measurement_file.write, measured, evidence, content.release))
            for name, (measured, evidence) in content.measurements.items()
        ]
