"""MPI: Open MPI over UCX and over libfabric, and MPICH over UCX.

The program is programs/mpi_check.c, which verifies received data; it is
compiled here. With two namespaces, half of the ranks are in each, as on two
hosts.
"""

import os
import stat
import subprocess
import tempfile

import fabric
import places
from applications import (LOOPBACK, OWN, VETH_1500, VETH_9000, Check, expect,
                          with_environment)
from places import Failure, How

NAME = "mpi"
PROGRAMS = ("mpirun.openmpi", "mpicc.openmpi", "mpirun.mpich", "mpicc.mpich")

LIMIT = 300  # seconds, eight ranks that poll on two cores


class Programs:
    """Compiles the program once, in a folder that every user can read."""

    def __init__(self):
        self.folder = None

    def path(self, mpi):
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="rxe_user-mpi-")
            os.chmod(self.folder.name, 0o755)
        path = os.path.join(self.folder.name, f"mpi_check.{mpi}")
        if not os.path.exists(path):
            here = os.path.dirname(os.path.abspath(__file__))
            source = os.path.join(here, "programs", "mpi_check.c")
            places.sh(f"mpicc.{mpi}", "-O1", "-Wall", "-o", path, source)
        return path

    def agent(self, runner, side):
        """The command that mpirun calls instead of ssh: it runs a command in
        the namespace of the client's end, with its own host name."""
        path = os.path.join(self.folder.name, f"agent-{side.netns}")
        with open(path, "w") as f:
            f.write(f"""#!/bin/sh
# Usage: agent [OPTIONS] HOST COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
exec ip netns exec {side.netns} unshare --uts sh -c \
  'hostname other; exec {runner.rxe_user} run -- sh -c "$0"' "$*"
""")
        os.chmod(path, 0o755)
        return path


programs = Programs()


def _openmpi(ranks, layer, side, device, gid, how):
    argv = ["mpirun.openmpi", "--oversubscribe", "-np", str(ranks),
            "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self"]
    if how.user == "root":
        argv.append("--allow-run-as-root")
    if layer == "ofi":
        argv += ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca",
                 "mtl_ofi_provider_include", "verbs;ofi_rxm", "--mca", "osc",
                 "pt2pt"]
        environment = fabric.only(device, side)
    else:
        argv += ["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca",
                 "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
        environment = _ucx_environment(layer, device, gid, how)
    for name in environment:
        argv += ["-x", name]
    return argv, environment


def _ucx_environment(tls, device, gid, how):
    environment = {"UCX_TLS": f"{tls},self", "UCX_NET_DEVICES": f"{device}:1"}
    if how.family != 4:
        environment["UCX_IB_GID_INDEX"] = gid
    return environment


def _mpich(ranks, tls, _, device, gid, how):
    environment = _ucx_environment(tls, device, gid, how)
    # Ranks of one host use the device, too.
    environment["MPIR_CVAR_NOLOCAL"] = "1"
    return ["mpirun.mpich", "-np", str(ranks)], environment


def _hosts(mpi, runner, place):
    """The options for ranks at both ends of `place`."""
    if place.server is place.client:
        return ["-launcher", "fork"] if mpi == "mpich" else []
    agent = programs.agent(runner, place.client)
    hosts = (place.server.ipv4, place.client.ipv4)
    if mpi == "mpich":
        return ["-launcher", "ssh", "-launcher-exec", agent, "-iface",
                place.server.device_of, "-hosts", ",".join(hosts)]
    return ["--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include",
            place.server.device_of, "--map-by", "node", "-host",
            ",".join(f"{h}:8" for h in hosts)]


def _run(mpi, ranks, layer, largest):
    def run(runner, place, how):
        device, gid = runner.device_and_gid(place.server, how.family)
        program = programs.path(mpi)
        make = _mpich if mpi == "mpich" else _openmpi
        argv, environment = make(ranks, layer, place.server, device, gid, how)
        environment["HOME"] = "/tmp"
        argv += _hosts(mpi, runner, place) + [program, str(largest)]
        process = runner.start(place.server, how,
                               with_environment(environment, argv))
        try:
            text = places.finish(process, "mpirun", LIMIT)
        finally:
            places.end(process)
        expect(text, f"mpi_check: {ranks} ranks", " 0 wrong")

    return run


def checks():
    out = []
    for mpi, layers in (("openmpi", ("rc_v", "ud_v", "ofi")),
                        ("mpich", ("rc_v", "ud_v"))):
        for layer in layers:
            for ranks in (2, 4, 8):
                # libfabric ignores the loopback interface.
                one_host = OWN if layer == "ofi" else LOOPBACK
                brief = ranks == 2 and (mpi, layer) in (
                    ("openmpi", "rc_v"), ("openmpi", "ofi"))
                largest = (1 << 18) if ranks == 8 or brief else (4 << 20)
                run = _run(mpi, ranks, layer, largest)
                out.append(Check(
                    f"{mpi} over {layer}, {ranks} ranks", run, brief,
                    ((one_host, How("nobody")), (VETH_9000, How()),
                     (one_host, How("root", 6)), (VETH_1500, How()))
                    if ranks == 2 else
                    ((one_host, How("nobody")), (VETH_9000, How()))))
    return out
