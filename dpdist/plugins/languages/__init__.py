"""What pages and certificates say in other languages, one file each."""

from dpdist.api import Plugin

PLUGIN = Plugin("languages", translations="dpdist.plugins.languages.translations")
