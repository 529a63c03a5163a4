"""UCX: ucx_info, ucx_perftest in UCT and UCP mode, io_demo.

ucx_perftest does not verify received data; io_demo -q does, and so do the MPI
programs of mpi.py for one-sided operations.
"""

import re

import places
from applications import Check, expect, pair, with_environment
from places import Failure

NAME = "ucx"
PROGRAMS = ("ucx_info", "ucx_perftest", "io_demo")
PORT = 13337
IO_PORT = 1337

TRANSPORTS = ("rc_v", "ud_v", "rc_v,ud_v,self")
SIZES = (1, 8, 100, 1024, 4097, 65536, 1 << 20, 16 << 20)
UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "stream_lat", "stream_bw",
             "ucp_put_lat", "ucp_put_bw", "ucp_get", "ucp_am_lat", "ucp_am_bw")
ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")
BRIEF = (("tag_bw", 1 << 20), ("ucp_get", 4097), ("ucp_fadd", 8))
# Test, layouts, sizes; on rc_verbs. ud_verbs has active messages only, both
# have a short one of 63 bytes, and a zero-copy get of 65 bytes or more.
UCT_TESTS = (
    ("am_lat", ("short", "bcopy", "zcopy"), (8, 56)),
    ("am_bw", ("short", "bcopy", "zcopy"), (8, 56)),
    ("put_lat", ("short", "bcopy", "zcopy"), (8, 56)),
    ("put_bw", ("short", "bcopy", "zcopy"), (8, 56)),
    ("put_bw", ("bcopy",), (4096,)),
    ("put_bw", ("zcopy",), (65536, 16 << 20)),
    ("get", ("bcopy",), (8, 4096)),
    ("get", ("zcopy",), (128, 65536, 16 << 20)),
    ("add_mr", ("short",), (8,)),
    ("add_lat", ("short",), (8,)),
    ("fadd", ("short",), (8,)),
    ("cswap", ("short",), (8,)),
)


def _iterations(size):
    """Enough for queues to wrap around, and less than two seconds."""
    return max(10, min(2000, (64 << 20) // size))


def _result(text):
    """The numbers of `ucx_perftest -f -v`: comma-separated in the last line."""
    rows = [l for l in text.splitlines() if re.match(r"^\s*\d+,[\d.,inf]+$", l)]
    if not rows:
        raise Failure("no result in:\n" + text)
    return rows[-1]


def _environment(runner, side, how, tls):
    device, gid = runner.device_and_gid(side, how.family)
    environment = {"UCX_TLS": tls, "UCX_NET_DEVICES": f"{device}:1",
                   "UCX_WARN_UNUSED_ENV_VARS": "n"}
    # By default UCX uses a RoCE v2 GID of IPv4.
    if how.family != 4:
        environment["UCX_IB_GID_INDEX"] = gid
    return environment


def _perftest(tls, options, uct=False, brief=False):
    def run(runner, place, how):
        def argv(side):
            environment = _environment(runner, side, how, tls)
            device = environment["UCX_NET_DEVICES"]
            where = ["-d", device, "-x", tls] if uct else []
            return with_environment(environment, ["ucx_perftest"] + options +
                                    where + ["-p", str(PORT), "-f", "-v"])

        client = argv(place.client)
        at = client.index("ucx_perftest") + 1
        client.insert(at, place.server.ipv4)
        said, _ = pair(runner, place, how, argv(place.server), client, PORT)
        _result(said)

    mode = "uct" if uct else "ucp"
    return Check(f"{mode} {tls}: ucx_perftest {' '.join(options)}", run,
                 brief)


def _info(runner, place, how):
    for side in (place.server, place.client):
        device, _ = runner.device_and_gid(side, how.family)
        text = places.finish(runner.start(side, how, ["ucx_info", "-d"]),
                             "ucx_info")
        found = re.findall(r"Transport: (\w+)\s*\n#\s*Device: (\S+)", text)
        for transport in ("rc_verbs", "ud_verbs"):
            if (transport, f"{device}:1") not in found:
                raise Failure(f"no {transport} on {device}:\n{text}")
        expect(text, "Connection manager: rdmacm")


def _io_demo(tls, options):
    """Reads and writes with verified contents; connected by rdmacm."""
    def run(runner, place, how):
        def argv(side):
            environment = _environment(runner, side, how, tls)
            environment["UCX_SOCKADDR_TLS_PRIORITY"] = "rdmacm"
            return with_environment(environment, ["io_demo", "-q"] + options)

        server = runner.start(place.server, how, argv(place.server))
        try:
            client = runner.start(place.client, how, argv(place.client) +
                                  ["-c", "100", "-y", "0.1",
                                   place.server.ipv4])
            try:
                text = places.finish(client, "the client")
            finally:
                places.end(client)
        except Failure as e:
            raise Failure(f"{e}\nthe server {places.last_words(server)}")
        finally:
            places.end(server)
        expect(text, "Client exit with status 'OK'")
        if re.search(r"ERROR|corrupt", text):
            raise Failure(text)

    return Check(f"{tls} over rdmacm: io_demo -q {' '.join(options)}", run,
                 "1:1048576" in options and "-A" not in options)


def checks():
    out = [Check("ucx_info -d", _info, brief=True)]
    for tls in TRANSPORTS:
        for test in UCP_TESTS:
            for size in SIZES:
                n = _iterations(size)
                out.append(_perftest(tls, ["-t", test, "-s", str(size), "-n",
                                           str(n), "-w", "10"],
                                     brief=(test, size) in BRIEF))
        for test in ATOMICS:
            for size in (4, 8):
                out.append(_perftest(tls, ["-t", test, "-s", str(size), "-n",
                                           "2000", "-w", "10"],
                                     brief=(test, size) in BRIEF))
    for tls in ("rc_verbs", "ud_verbs"):
        for test, layouts, sizes in UCT_TESTS:
            if tls == "ud_verbs" and not test.startswith("am"):
                continue
            for layout in layouts:
                for size in sizes:
                    out.append(_perftest(
                        tls, ["-t", test, "-D", layout, "-s", str(size), "-n",
                              str(_iterations(size)), "-w", "10"], uct=True))
    for tls in TRANSPORTS[:2]:
        for options in (["-o", "read,write", "-d", "8:4096", "-i", "1000"],
                        ["-o", "read,write", "-d", "1:1048576", "-i", "200"],
                        ["-A", "-o", "read,write", "-d", "1:1048576", "-i",
                         "200"]):
            out.append(_io_demo(tls, options))
    return out
