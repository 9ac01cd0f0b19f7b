"""The budget periods that the steps of a stream lie in."""

from __future__ import annotations

import datetime
import math

from dpdist.privacy.ledger.budget_ledger import StreamPart
from dpdist.privacy.ledger.charges import period_of
from dpdist.spec.job import GrowingSeries


def periods_reached(stream: GrowingSeries, per: str, stream_part: StreamPart) -> tuple[str, ...]:
    """The budget periods that the new steps of a part lie in, where the cap is per period and the spec says which times they are."""
    attribute = stream.series
    times = stream.measured.attributes[attribute.name].values.times(attribute)
    if per == "total" or times is None:
        return ()
    begin, stop = (attribute.edges[step] - attribute.edges[0] for step in (stream_part.start, stream_part.stop))
    first_time, last_day = times.begins(math.floor(begin)), times.ends(math.ceil(stop) - 1).date()
    days = (first_time.date() + datetime.timedelta(days=number) for number in range((last_day - first_time.date()).days + 1))
    return tuple(dict.fromkeys(period_of(day, per) for day in days))
