"""A page on which a release is planned before anything is spent."""

from dpdist.api import Plugin

PLUGIN = Plugin("studio", commands={"studio": "dpdist.plugins.studio.studio_command:studio"}, needs=("spec_drafts",))
