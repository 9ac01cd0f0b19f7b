"""A second program that recomputes the claims of a release from its published files, and trusts nothing of dpdist."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "verifier",
    outputs=("dpdist.plugins.verifier.verifier_program:VERIFIER_COPY",),
    verifiers=("dpdist.plugins.verifier.verifier_program:check_claims",),
)
