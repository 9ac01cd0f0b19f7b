"""The language of a page: sentences, numbers and dates. English stands where it is said; plugins hold the files of others."""

from dpdist.language.translation import (
    LANGUAGES,
    MINUS,
    current_language,
    format_date,
    localize_number,
    plural,
    say,
    translatable,
    translate_certificate,
    translate_group_name,
    use_language,
    with_superscripts,
)

__all__ = [
    "LANGUAGES",
    "MINUS",
    "current_language",
    "format_date",
    "localize_number",
    "plural",
    "say",
    "translatable",
    "translate_certificate",
    "translate_group_name",
    "use_language",
    "with_superscripts",
]
