"""Figures of applications: ucx_perftest in UCP mode, and an MPI ping-pong with
Open MPI over UCX. Each over our device, or over UCX's own transports.
"""

import os
import re
import shutil
import subprocess
import tempfile

import places
from figures import HERE, LIMIT, Sample, Skip, _kill, free_port
from places import Failure

# UCX_TLS and the device; ours is looked up, and its packets go by UDP or
# through shared memory.
WAYS = {"ours": ("rc_v,self", None), "ours, shared memory": ("rc_v,self", None),
        "tcp": ("tcp,self", "lo"), "shared memory": ("sm,self", "memory")}


def _start(bench, place, way, argv):
    tls, device = WAYS[way]
    if device is None:
        device = bench.runner.device_and_gid(place.server, 4)[0] + ":1"
    environment = {"UCX_TLS": tls, "UCX_NET_DEVICES": device,
                   "UCX_WARN_UNUSED_ENV_VARS": "n"}
    if way.startswith("ours"):
        how = bench.how(memory=way == "ours, shared memory")
        argv = bench.runner.argv(place.server, how, argv)
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd="/",
        env={**os.environ, **environment})


def _ucx_perftest(bench, way, argv):
    """The numbers of its last line: iterations; us: median, average of the
    last interval and of all; MB/s and messages/s, each of the last interval
    and of all."""
    if not shutil.which("ucx_perftest"):
        raise Skip("there is no ucx_perftest (ucx-utils)")
    place, port = bench.place("loopback"), free_port()
    argv = ["ucx_perftest", "-p", str(port), "-f", "-v", *argv]
    started = []
    try:
        started.append(_start(bench, place, way, argv))
        places.await_listen(started[0], port)
        started.append(_start(bench, place, way, [*argv, place.server.ipv4]))
        text = places.finish(started[1], "ucx_perftest", LIMIT)
        places.finish(started[0], "its server", LIMIT)
    finally:
        _kill(started)
        for process in started:
            places.end(process)
    rows = re.findall(r"^\d+(?:,[\d.]+)+$", text, re.M)
    if not rows:
        raise Failure("no result in:\n" + text)
    return [float(number) for number in rows[-1].split(",")]


def tag_bandwidth(way, size, count, messages_per_s=False):
    """Gbit/s, or millions of messages a second, of all of `count`."""
    def measure(bench):
        row = _ucx_perftest(bench, way, ["-t", "tag_bw", "-s", str(size), "-n",
                                         str(count)])
        rate = row[7]
        return Sample(rate / 1e6 if messages_per_s else rate * size * 8 / 1e9,
                      count, count * size)

    return measure


def tag_latency(way, size, count):
    """The median, us."""
    def measure(bench):
        row = _ucx_perftest(bench, way, ["-t", "tag_lat", "-s", str(size), "-n",
                                         str(count)])
        return Sample(row[1], count, 2 * count * size)

    return measure


class Program:
    """mpi_ping_pong, compiled once in a folder that every user may read."""

    def __init__(self):
        self.folder = None

    def path(self):
        if not shutil.which("mpicc.openmpi"):
            raise Skip("there is no mpicc.openmpi (libopenmpi-dev)")
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="rxe_user-mpi-")
            os.chmod(self.folder.name, 0o755)
            places.sh("mpicc.openmpi", "-O2", "-Wall", "-o",
                      os.path.join(self.folder.name, "mpi_ping_pong"),
                      os.path.join(HERE, "mpi_ping_pong.c"))
        return os.path.join(self.folder.name, "mpi_ping_pong")


_program = Program()


def mpi_ping_pong(way, size, count, gbit_per_s=False):
    """The median of half a round trip in us, or the bandwidth in Gbit/s."""
    def measure(bench):
        argv = ["mpirun.openmpi", "-np", "2", "--oversubscribe",
                "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any",
                "--mca", "pml_ucx_devices", "any", "--mca", "btl", "self"]
        if os.geteuid() == 0:
            argv.append("--allow-run-as-root")
        # Ranks of one host are children of mpirun and inherit its environment.
        process = _start(bench, bench.place("loopback"), way,
                         [*argv, _program.path(), str(size), str(count)])
        try:
            text = places.finish(process, "mpirun", LIMIT)
        finally:
            places.end(process)
        found = re.search(r"^half round trip: ([\d.]+) us$", text, re.M)
        if not found:
            raise Failure("no result in:\n" + text)
        us = float(found[1])
        return Sample(size * 8 / us / 1e3 if gbit_per_s else us, count,
                      2 * count * size)

    return measure
