"""Drafts of specs: ``dpdist init`` writes one from the names and types of a file's columns."""

from dpdist.api import Plugin

PLUGIN = Plugin("spec_drafts", commands={"init": "dpdist.plugins.spec_drafts.init_command:init"})
