"""Programs that connect by the RDMA CM: rdmacm-utils, also over rsockets, and
perftest -R.

Nothing outside a program shows that it listens. So a client that is refused
because its server does not listen yet is started again while the server runs.
"""

import re
import time
from dataclasses import dataclass

import cells
import places
from places import Failure

NOBODY_LISTENS = re.compile(
    r"RDMA_CM_EVENT_REJECTED.*\b8\b|RDMA_CM_EVENT_UNREACHABLE.*\b1\b|"
    r"[Cc]onnection refused|Unexpected CM event bl blka 8|"
    r"rpoll: Operation now in progress")


@dataclass(frozen=True)
class CmCell:
    """A server and a client. In their options, @ is the server's address, %
    the client's, GROUP a multicast address, and GID that group's GID."""

    server: str
    client: str
    endless: bool = False  # the server outlives its client
    ipv4_only: bool = False
    multicast: bool = False

    def __str__(self):
        return self.client


def core_cells():
    """The cells for every environment."""
    return [CmCell("rping -s -a @ -C 100 -S 65535 -V",
                   "rping -c -a @ -C 100 -S 65535 -V")]


def rsocket_cells():
    """The rdmacm-utils over rsockets. Both ends know how much is sent."""
    both = [
        "rstream -S all -T v -I 10 -C 10",
        "rstream -T a -T v -I 100 -C 10",
        "rstream -T b -T v -I 20 -C 10 -S 1000000",
        "rstream -T n -T v -I 100 -C 10 -B 1048576 -S 100000",
        "rstream -T r -I 10 -C 100 -B 4096",
        "rstream -T s -I 10",
        "riostream -T v -I 20 -C 10",
        "riostream -T v -I 20 -C 5 -S 1000000",
        "riostream -T a -T v -I 20 -C 10 -S 100000",
        "riostream -T b -I 20 -C 50 -S 65536",
    ]
    return [CmCell(f"{line} -b @", f"{line} -s @") for line in both] + [
        CmCell("udpong -b @", f"udpong -s @ {line}", endless=True)
        for line in ("-C 200 -S 1000", "-C 200 -T a", "-C 200 -T b -S 100")]


def every_cell():
    return [
        # The server's output is read when it has ended: no -v there.
        CmCell("rping -s -a @ -C 1000 -S 65535",
               "rping -c -a @ -C 1000 -S 65535 -v"),
        CmCell("rping -s -a @ -P", "rping -c -a @ -C 100", endless=True),
        CmCell("rping -s -a @ -q -C 100", "rping -c -a @ -q -C 100"),
        CmCell("ucmatose -b @", "ucmatose -s @"),
        CmCell("ucmatose -b @ -c 100 -C 20 -S 5000 -m",
               "ucmatose -s @ -c 100 -C 20 -S 5000 -m"),
        CmCell("ucmatose -b @ -P ib", "ucmatose -s @ -P ib"),
        CmCell("udaddy -b @ -C 20 -S 1000", "udaddy -s @ -C 20 -S 1000"),
        CmCell("udaddy -b @ -c 20", "udaddy -s @ -c 20"),
        CmCell("rdma_server -s @", "rdma_client -s @"),
        CmCell("rdma_xserver", "rdma_xclient -s @", ipv4_only=True),
        CmCell("rdma_xserver -c x", "rdma_xclient -c x -s @", ipv4_only=True),
        CmCell("ucmatose -b @ -f gid", "ucmatose -s @ -f gid"),
        CmCell("mckey -m GROUP -b @", "mckey -m GROUP -b % -s",
               multicast=True),
        CmCell("mckey -M GID -b @ -c 3 -C 5 -S 900",
               "mckey -M GID -b % -s -c 3 -C 5 -S 900", multicast=True),
        CmCell("cmtime -b @", "cmtime -s @ -c 1000", endless=True),
    ] + rsocket_cells() + [perftest_cell(line) for line in (
        "ib_send_lat -e -n 100", "ib_write_bw -q 8 -n 100")]


def perftest_cell(line):
    """Stock perftest 4.5 only resolves IPv4 addresses."""
    return CmCell(f"{line} -R -F", f"{line} -R -F @", ipv4_only=True)


def perftest_cells():
    """perftest -R: each program over each service that it supports with -R."""
    return [perftest_cell(f"{program} -n 20")
            for program in cells.PERFTESTS] + [
        perftest_cell(f"ib_send_{kind} -c UD -n 20") for kind in ("bw", "lat")]


def refused_cells():
    """The services that stock perftest 4.5 refuses with -R: (cell, reason)."""
    return [(cells.Cell(program, ("-c", service, "-R")), f"{service} with -R")
            for program in cells.PERFTESTS for service in ("UC", "XRC")
            if service == "XRC" or program.split("_")[1] in ("send", "write")]


def until_heard(runner, place, how, cell, argv, server):
    """A sender to a group is never refused: it sends until it was heard."""
    end_time = time.monotonic() + places.LIMIT
    while server.poll() is None:
        if time.monotonic() > end_time:
            raise Failure("the server has not heard its group")
        client = runner.start(place.client, how, argv(cell.client))
        try:
            places.finish(client, "the client")
        finally:
            places.end(client)
    places.finish(server, "the server")


def run(runner, place, how, cell):
    """Runs server and client of one cell. Returns the client's output; none
    for a multicast cell."""
    ipv4 = how.family == 4 or cell.ipv4_only
    words = {"@": place.server.ipv4 if ipv4 else place.server.ipv6,
             "%": place.client.ipv4 if ipv4 else place.client.ipv6,
             "GROUP": "239.77.0.1" if ipv4 else "ff0e::77:1",
             "GID": "::ffff:239.77.0.2" if ipv4 else "ff0e::77:2"}

    def argv(line):
        if "-f gid" in line and ipv4:  # the form of IPv4 addresses in GIDs
            words["@"] = "::ffff:" + place.server.ipv4
        return [words.get(word, word) for word in line.split()]

    server = runner.start(place.server, how, argv(cell.server))
    try:
        if cell.multicast:
            until_heard(runner, place, how, cell, argv, server)
            return
        text = places.finish_once_heard(
            lambda: runner.start(place.client, how, argv(cell.client)),
            server, NOBODY_LISTENS)
        if not cell.endless:
            places.finish(server, "the server")
        if cell.client.split()[0] in cells.PERFTESTS:
            places.perftest_row(text)
        return text
    except Failure as e:
        raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
    finally:
        places.end(server)
