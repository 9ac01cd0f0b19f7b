"""Programs that the tests run inside the containers of an installation."""

from __future__ import annotations

DRAWN_BY_WORKERS = """
import json, os, time
from dpdist import engine
from dpdist.arrays.lazy_vector import to_array
from dpdist.pipeline import distributed_noise, measure, release_run
from dpdist.runtime.context import Context
from dpdist.size_limits import Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.storage.home_folder import state_folder

own, told, sizes = [], [], Sizes(shard_bytes=128)

def draw(context, claim, name, noisy, facts):
    own.append(to_array(noisy))
    return distributed_noise.draw_on_workers(context, claim, name, noisy, facts)

measure.draw_on_workers = draw
with engine.open_engine(None) as where:
    deadline = time.monotonic() + 600
    while len(where.with_resource("noise")) < 2:
        assert time.monotonic() < deadline, "the workers that draw noise did not come"
        time.sleep(1)
    store = Store(os.environ["DPDIST_STORE"], sizes)
    context = Context(state_folder(), store, where, lambda stage, line: told.append(f"{stage}: {line}"))
    release_run.release(context, load("/data/specs/noise.yaml", sizes=sizes))
    drawers = where.with_resource("noise")
same = bool((store.read_array(store.open("measurements/noise-1")) == own[0]).all())
print(json.dumps({"drawers": len(drawers), "told": told, "same": same}))
"""
"""A release whose noise two workers draw, and what the flow would have drawn."""

WITHOUT_TLS = """
import dask
from dpdist.errors import EngineError
from dpdist import engine
from distributed import Client
try:
    with engine.open_engine("tcp://scheduler:8786"):
        print("reached")
except EngineError as error:
    print(error)
dask.config.set({"distributed.comm.require-encryption": False})
try:
    Client("tcp://scheduler:8786", timeout=10)
    print("reached")
except OSError:
    print("nobody answers")
"""
"""Reaching the scheduler without a certificate."""

ATTEMPTS = """
for place in {places}; do
  cat $place/probe >/dev/null 2>&1 && right=read || right=-
  ( : > $place/probe-of-{name} ) 2>/dev/null && right=write
  echo $right
done
cat /run/secrets/root-key >/dev/null 2>&1 && echo read || echo -
"""
"""Reading and writing in every folder, and reading the root key."""

RACE = """
import sys, time
from dpdist.storage.documents import Documents
documents = Documents("/data/store")
while time.time() < {start}:
    pass
print(*(number for number in range(300) if documents.create_document(f"scratch/race/{{number}}.json", {{"by": sys.argv[1]}})))
"""
"""Writing 300 documents at the moment when others do."""
