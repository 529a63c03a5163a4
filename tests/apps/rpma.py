"""librpma, remote access to persistent memory. programs/rpma_check.c, compiled
here, writes, flushes, reads and sends, and verifies received data.
"""

import places
from applications import LOOPBACK, VETH_1500, Check, expect
from others import programs
from places import Failure, How

NAME = "rpma"
PROGRAMS = ("gcc", "/usr/include/librpma.h")
PORT = 18700
SPOTS = tuple((place, How(user, family)) for place, user, family in
              ((LOOPBACK, "nobody", 4), (VETH_1500, "root", 6),
               (LOOPBACK, "root", 6), (VETH_1500, "nobody", 4)))


def _await_words(process, words):
    """Reads the output up to `words`; later output stays unread."""
    for line in process.stdout:
        if words in line:
            return
    raise Failure(f"it ended without '{words}'")


def _memory(runner, place, how):
    program = programs.path("rpma_check.c", "gcc",
                            libraries=("-lrpma", "-libverbs"))
    address = place.server.ipv4 if how.family == 4 else place.server.ipv6
    server = runner.start(place.server, how,
                          [program, "server", address, str(PORT)])
    client = None
    try:
        _await_words(server, "listens")
        client = runner.start(place.client, how,
                              [program, "client", address, str(PORT)])
        expect(places.finish(client, "the client"), "ok")
        expect(places.finish(server, "the server"), "ok")
    except Failure as e:
        raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
    finally:
        for process in (server, client):
            if process:
                places.end(process)


def checks():
    return [Check("librpma: write, flush, read, send", _memory, True, SPOTS)]
