"""Gloo, DAPL, programs under valgrind, and the requirements of applications
that cannot run here.

programs/gloo_check.cc computes sums with Gloo's verbs transport and verifies
them; programs/needs.c checks what the sources of other applications need from
a device. Both are compiled here.
"""

import os
import tempfile

import places
from applications import (LOOPBACK, VETH_1500, Check, expect, pair,
                          with_environment)
from places import Failure, How

NAME = "others"
PROGRAMS = ("gcc", "g++", "dapltest", "valgrind")
RANKS = 3
PORT = "18515"
SPOTS = ((LOOPBACK, How("nobody")), (VETH_1500, How()), (LOOPBACK, How()))


class Programs:
    """Compiles the programs once, in a folder that every user can read."""

    def __init__(self):
        self.folder = None

    def path(self, name, *compiler, libraries=()):
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="rxe_user-others-")
            os.chmod(self.folder.name, 0o755)
        path = os.path.join(self.folder.name, name.split(".")[0])
        if not os.path.exists(path):
            here = os.path.dirname(os.path.abspath(__file__))
            places.sh(*compiler, "-O1", "-Wall", "-o", path,
                      os.path.join(here, "programs", name), *libraries)
        return path


programs = Programs()


def _needs(runner, place, how):
    program = programs.path("needs.c", "gcc", libraries=("-libverbs", "-ldl"))
    for side in (place.server, place.client):
        device, gid = runner.device_and_gid(side, how.family)
        process = runner.start(side, how, [program, device, str(gid),
                                           side.device_of])
        try:
            expect(places.finish(process, "needs"), " 0 missing")
        finally:
            places.end(process)


def _gloo(runner, place, how):
    """Ranks at both ends; they find each other by files."""
    program = programs.path("gloo_check.cc", "g++", "-std=c++17",
                            libraries=("-lgloo", "-lpthread"))
    with tempfile.TemporaryDirectory(prefix="rxe_user-gloo-") as folder:
        os.chmod(folder, 0o777)
        ranks = []
        try:
            for rank in range(RANKS):
                side = (place.server, place.client)[rank % 2]
                device, gid = runner.device_and_gid(side, how.family)
                ranks.append(runner.start(side, how, [
                    program, str(rank), str(RANKS), folder, device, str(gid)]))
            for rank, process in enumerate(ranks):
                expect(places.finish(process, f"rank {rank}"),
                       f"rank {rank} ok")
        finally:
            for process in ranks:
                places.end(process)


def _dapl(transfers):
    def run(runner, place, how):
        with tempfile.TemporaryDirectory(prefix="rxe_user-dapl-") as folder:
            os.chmod(folder, 0o755)

            def argv(side, *arguments):
                file = os.path.join(folder, f"{side.device_of}.conf")
                with open(file, "w") as out:
                    out.write("here u2.0 nonthreadsafe default libdaplofa.so.2 "
                              f'dapl.2.0 "{side.device_of} 0" ""\n')
                return with_environment({"DAT_OVERRIDE": file}, [
                    "dapltest", *arguments, "-D", "here"])

            client = argv(place.client, "-T", "T", "-s", place.server.ipv4)
            server = runner.start(place.server, how,
                                  argv(place.server, "-T", "S"))
            try:
                # Nothing shows that it listens: a refused client tries again.
                for _ in range(20):
                    process = runner.start(place.client, how, client + [
                        "-i", "50", "-t", "2", "-w", "2", "-R", "BE",
                        *transfers])
                    said = places.finish(process, "the client")
                    places.end(process)
                    if "Total RDMA Write" in said:
                        break
                expect(said, "Total RDMA Write", "End of Work")
                process = runner.start(place.client, how, argv(
                    place.client, "-T", "Q", "-s", place.server.ipv4))
                places.finish(process, "dapltest -T Q")
                places.end(process)
                places.finish(server, "the server")
            except Failure as e:
                raise Failure(
                    f"{e}\nthe server {places.last_words(server)}") from e
            finally:
                places.end(server)

    return Check("dapltest " + " ".join(transfers), run, False, SPOTS)


def _valgrind(program, *options):
    """Neither memcheck nor the lints that ask it find anything at either end."""
    def run(runner, place, how):
        def argv(side):
            device, gid = runner.device_and_gid(side, how.family)
            flags = (["-g", str(gid)] if program.startswith("ibv_") else
                     ["-x", str(gid), "-F"])
            return with_environment({"RXE_USER_CHECK": "1"}, [
                "valgrind", "-q", "--error-exitcode=9", program, "-d", device,
                "-p", PORT, *flags, *options])

        for said in pair(runner, place, how, argv(place.server),
                         argv(place.client) + [place.server.ipv4], int(PORT)):
            if "rxe_user: check: " in said:
                raise Failure(said)

    return Check(f"valgrind {program} {' '.join(options)}", run,
                 program == "ibv_rc_pingpong", SPOTS)


def checks():
    return [
        Check("needs of NCCL, Mooncake, SPDK, Valkey, brpc", _needs, True,
              SPOTS),
        Check(f"gloo, {RANKS} ranks", _gloo, True, SPOTS),
        _dapl("client SR 4096 2 server SR 4096 2".split()),
        _dapl("client SR 256 server RW 65536 4 client RR 65536 4 "
              "server SR 256".split()),
        _valgrind("ibv_rc_pingpong", "-n", "50"),
        _valgrind("ibv_ud_pingpong", "-n", "50"),
        _valgrind("ibv_srq_pingpong", "-n", "50"),
        _valgrind("ib_read_lat", "-n", "20", "-e"),
    ]
