"""Charts of a page, for notebooks."""

from __future__ import annotations

import base64
import re
from itertools import islice

from dpdist.plugins.page.charts import standalone_svg

PICTURES, LARGEST_PICTURE = 2, 64 * 1024
"""Charts that a notebook shows of a page, and characters of one: it stores them with its cell."""
CHART = re.compile(r'<svg class="wide"(?: [^<>]*)? aria-label="([^"<>]*)"[^<>]*>.*?</svg>', re.DOTALL)


def chart_images(page: str) -> str:
    """The first charts of a page with their intervals, as images, which run no script and take no style of the notebook."""
    drawn = (match for match in CHART.finditer(page) if len(match[0]) <= LARGEST_PICTURE and "<use" not in match[0])
    return "".join(
        f'<p>{match[1]}<br><img alt="{match[1]}" style="max-width:100%" src="data:image/svg+xml;base64,'
        f'{base64.b64encode(standalone_svg(match[0]).encode()).decode()}"></p>'
        for match in islice(drawn, PICTURES)
    )
