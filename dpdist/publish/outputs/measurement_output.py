"""The noisy measurement, of which readers ask more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpdist.content import measurement_file
from dpdist.content.destination import WrittenFile
from dpdist.publish.output_file import Output, ReleaseDraft


class PublishedMeasurement(Output):
    """The measurement with its strategy, where it is published."""

    files = r"(measurement|horizon)\.npz"
    about = (
        "The noisy measurement with its strategy. With [`dpdist ask`](../guides/ask.md), readers compute answers from it that the release "
        "did not publish. `horizon.npz` says the same of the whole horizon of a stream, of which its errors are, without a value yet."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        content = release.content
        return [
            release.destination.write_file(
                name, partial(measurement_file.write_measurement, measured, evidence, content.release)
            )
            for name, (measured, evidence) in content.measurements.items()
        ]
