"""The plain page of a release: what it protects, its first answers, and its files; without script, charts and languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dpdist.content.answer_tables import answer_batches
from dpdist.content.destination import WrittenFile
from dpdist.content.suppression import suppression_sentence
from dpdist.language import current_language, say, use_language
from dpdist.page.citation import citation_sentence
from dpdist.page.domain_text import exclusion_sentences
from dpdist.page.edition_text import edition_sentences
from dpdist.page.guarantee_text import guarantee_text
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.publish.output_file import Output, ReleaseDraft

PLAIN_ROWS = 1000
"""Answers that the page shows; the tables beside it hold all of them."""
STYLE = "body{font-family:sans-serif;margin:2em}td,th{text-align:left;padding:0 1em 0 0}"
CERTIFICATE_FILES = ("release.json", "release.json.sig")
"""Files that are written after the page."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class PlainPage(Output):
    """A page of text and one table; the plugin ``page`` writes a page with charts in its place."""

    files = r"index\.html"
    about = "The page for readers: answers with charts, the guarantee, the method. It is one file and needs no server."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        with use_language(release.content.certificate.get("language", "en")):
            return [release.destination.write_bytes("index.html", plain_page(release).encode())]


def plain_page(release: ReleaseDraft) -> str:
    """The page of a release, one file of HTML that loads nothing."""
    content, rows = release.content, release.content.answer.size
    guarantee = [guarantee_text(content.certificate, name) for name in ("headline", "guess", "one_change", "bound")]
    sentences = [
        citation_sentence(content),
        *guarantee,
        *edition_sentences(content.certificate),
        *exclusion_sentences(content.certificate),
        *bound_loss_sentences(content.certificate),
        *filter(None, [suppression_sentence(content.certificate)]),
    ]
    names = sorted(
        {*(written_file.name for written_file in release.written if "/" not in written_file.name), *CERTIFICATE_FILES}
    )
    answers = next(answer_batches(content, 0, min(rows, PLAIN_ROWS), release.digits))
    texts = (("" if value is None else str(value) for value in row.values()) for row in answers.to_pylist())
    remark = say("The first {shown} of {rows:,} answers; all are in the files.", shown=f"{PLAIN_ROWS:,}", rows=rows)
    title = escape(content.title)
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="{current_language().code}"><head><meta charset="utf-8"><title>{title}</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head><body>',
            f"<h1>{title}</h1>",
            *(f"<p>{escape(sentence)}</p>" for sentence in sentences),
            f'<table id="answers">{_row("th", answers.column_names)}',
            *(_row("td", row) for row in texts),
            "</table>",
            *([f"<p>{escape(remark)}</p>"] if rows > PLAIN_ROWS else []),
            *(f'<p><a href="{escape(name)}">{escape(name)}</a></p>' for name in names),
            "</body></html>\n",
        ]
    )


def _row(element: str, texts: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{element}>{escape(text)}</{element}>" for text in texts) + "</tr>"
