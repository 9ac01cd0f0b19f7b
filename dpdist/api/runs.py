"""For plugins that publish releases for others: specs and jobs, preflight and run, keys and private files."""

from dpdist import engine
from dpdist.pipeline import preflight, release_run
from dpdist.privacy import keys
from dpdist.process import yaml_text
from dpdist.process.durable_files import private_file, private_folder
from dpdist.process.yaml_text import SPEC_BYTES
from dpdist.runtime.context import ignore_progress, open_context
from dpdist.spec import Job, check_many_periods, load
from dpdist.storage.objects import parse_location
