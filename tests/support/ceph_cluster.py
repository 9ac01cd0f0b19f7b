"""A Ceph cluster on this machine: a monitor, a manager, one disk in memory and the gateway that speaks S3 (Debian's packages)."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.loopback_ports import HeldPort
from tests.support.object_store_servers import BUCKET, listens, running

PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
PACKAGES = "radosgw ceph-mon ceph-mgr ceph-osd ceph-common"
SETTINGS = """[global]
fsid = {cluster}
mon host = [v2:127.0.0.1:{monitor},v1:127.0.0.1:{old_monitor}]
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms mon service mode = crc
ms client mode = crc
ms service mode = crc
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd objectstore = memstore
memstore device bytes = 2147483648
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 1
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
rgw data = {folder}/rgw
"""
WAITS = 120
"""Seconds within which every part of the cluster has to answer."""


@contextlib.contextmanager
def ceph_gateway(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket of a Ceph cluster of one machine, where Debian's packages are installed."""
    if not all(map(shutil.which, PROGRAMS)):
        pytest.skip(f"needs a Ceph cluster: apt-get install {PACKAGES}")
    monitor, old_monitor, gateway = HeldPort(), HeldPort(), HeldPort()
    cluster, disk, given = str(uuid.uuid4()), str(uuid.uuid4()), folder / "ceph.conf"
    for name in ("mon", "mgr", "osd", "rgw"):
        (folder / name).mkdir(parents=True)
    given.write_text(
        SETTINGS.format(cluster=cluster, monitor=monitor.number, old_monitor=old_monitor.number, folder=folder),
        encoding="utf-8",
    )

    def call(program: str, *words: str) -> str:
        """What a program of the cluster prints; it ends with an error if the program does."""
        return subprocess.run(
            [program, *(() if program == "monmaptool" else ("--conf", str(given))), *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=WAITS,
        ).stdout

    addresses = f"[v2:127.0.0.1:{monitor.number},v1:127.0.0.1:{old_monitor.number}]"
    call("monmaptool", "--create", "--fsid", cluster, "--addv", "a", addresses, str(folder / "monmap"))
    call("ceph-mon", "--id", "a", "--mkfs", "--monmap", str(folder / "monmap"))
    with contextlib.ExitStack() as servers:

        def start(program: str, *words: str, port: int | None = None) -> None:
            servers.enter_context(running(program, "--conf", str(given), *words, "-f", port=port))

        start("ceph-mon", "--id", "a", port=monitor.number)
        call("ceph", "osd", "new", disk, "0")
        call("ceph-osd", "--id", "0", "--osd-uuid", disk, "--mkfs")
        start("ceph-osd", "--id", "0")
        start("ceph-mgr", "--id", "x")
        wait_until(lambda: json.loads(call("ceph", "osd", "stat", "--format", "json"))["num_up_osds"] == 1)
        call(
            "radosgw-admin",
            "user",
            "create",
            "--uid=tester",
            "--display-name=tester",
            "--access-key=testkey",
            "--secret-key=testsecret",
        )
        start("radosgw", "--name", "client.rgw", "--rgw-frontends", f"beast endpoint=127.0.0.1:{gateway.number}")
        wait_until(lambda: listens(gateway.number))
        for name, value in {"ACCESS_KEY_ID": "testkey", "SECRET_ACCESS_KEY": "testsecret", "REGION": "us-east-1"}.items():
            patch.setenv(f"AWS_{name}", value)
        patch.setenv("AWS_ENDPOINT", address := f"http://127.0.0.1:{gateway.number}")
        patch.setenv("AWS_ALLOW_HTTP", "true")
        _make_bucket(address)
        yield f"s3://{BUCKET}"
    for port in (monitor, old_monitor, gateway):
        port.release()


def _make_bucket(address: str) -> None:
    import boto3

    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)


def wait_until(ready: Callable[[], bool]) -> None:
    """Wait for a part of the cluster.

    :raises TimeoutError: After two minutes.
    """
    until = time.monotonic() + WAITS
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError("the Ceph cluster is not ready")
        time.sleep(0.2)
