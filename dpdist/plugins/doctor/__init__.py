"""A probe of folders and object stores: whether a place keeps what dpdist relies upon, before anything is spent there."""

from dpdist.api import Plugin

PLUGIN = Plugin("doctor", commands={"doctor": "dpdist.plugins.doctor.doctor_command:doctor"})
"""The command ``dpdist doctor``."""
