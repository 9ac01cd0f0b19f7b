"""Memory that was freed is there again at once, and goes back to the kernel in the end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

MEASURED = """
import resource
from dpdist.process.allocator import freed_memory_kept, keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def again():
    before = faults()
    b"x" * 2**25  # what Python frees at once
    return faults() - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

first = [again() for _ in range(2)]
with freed_memory_kept():
    inside = [again() for _ in range(3)]
    held = resident()
left = resident()
after = again()
with freed_memory_kept():
    with freed_memory_kept():
        again()
    around_another = min(again() for _ in range(3))
keep_freed_memory()
kept = min(again() for _ in range(3))
with freed_memory_kept():
    again()
print(first[-1], inside[-1], held - left, after, around_another, kept, min(again() for _ in range(3)))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="memory is kept by glibc's allocator alone")
def test_what_is_freed_is_kept_and_then_given_back() -> None:
    """Page faults for 32 MiB: a process of its own, whose heap nobody else uses. The end of a block within another changes nothing."""
    told = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True).stdout
    outside, inside, given_back, after, around_another, kept, kept_after_a_block = map(int, told.split())
    assert inside < 8
    assert kept < 8
    assert around_another < 8
    assert kept_after_a_block < 8
    assert min(outside, after) > 8
    assert given_back > 2**24


IN_TASKS = """
import resource
from dpdist.engine import tasks

def faults_of_another_block(item):
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        b"x" * 2**25
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(tasks.without_data(faults_of_another_block, 0), faults_of_another_block(0))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="memory is kept by glibc's allocator alone")
def test_every_task_of_a_worker_keeps_what_it_frees() -> None:
    """Dask's nanny gives the workers that it starts a variable with which nothing is kept."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    printed = subprocess.run(
        [sys.executable, "-c", IN_TASKS], capture_output=True, text=True, check=True, env=environment
    ).stdout
    in_task, outside = map(int, printed.split())
    assert in_task < 8 < outside
