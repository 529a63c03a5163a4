"""Applications over our device: the common part of ucx.py, mpi.py and others.

Each of those has NAME, PROGRAMS (required programs) and checks(), a list of
Check. `tests/apps/run NAME` runs all checks of an application,
`tests/apps/run` the brief ones.
"""

import os
import shutil
from dataclasses import dataclass
from typing import Callable

import places
from places import Failure, How

# Indices of places.PLACES, and how: the environments of every application.
LOOPBACK, OWN, VETH_1500, VETH_9000 = range(4)
SPOTS = tuple((p, How(user, family))
              for family in (4, 6)
              for p, user in ((LOOPBACK, "nobody"), (VETH_1500, "root"),
                              (LOOPBACK, "root"), (VETH_9000, "nobody")))


@dataclass(frozen=True)
class Check:
    """One run of an application. `run` takes the runner, a place and how, and
    raises Failure."""

    text: str
    run: Callable
    brief: bool = False
    # Where it runs. Empty: at one of SPOTS, by turns.
    spots: tuple = ()


def missing(programs):
    """The PROGRAMS that are not installed; a path is a file, such as a
    library."""
    return [p for p in programs
            if not (os.path.exists(p) if os.path.isabs(p) else
                    shutil.which(p))]


def spread(checks, brief):
    """(place index, how, check) of all checks."""
    out = []
    for i, check in enumerate(c for c in checks if c.brief or not brief):
        # Each round starts one further, so that checks do not always get the
        # same spot.
        at = (i + i // len(SPOTS)) % len(SPOTS)
        spots = check.spots or (SPOTS[at],)
        for p, how in (spots[i % len(spots)],) if brief else spots:
            out.append((p, how, check))
    return out


def with_environment(environment, argv):
    return ["env"] + [f"{k}={v}" for k, v in environment.items()] + argv


def pair(runner, place, how, server_argv, client_argv, port, ends=True):
    """Runs a server that listens on TCP `port`, and its client. `ends`: the
    server ends with its client. Returns the output of client and server."""
    server = runner.start(place.server, how, server_argv)
    client = None
    try:
        places.await_listen(server, port)
        client = runner.start(place.client, how, client_argv)
        said = places.finish(client, "the client")
        return said, places.finish(server, "the server") if ends else ""
    except Failure as e:
        raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
    finally:
        for process in (server, client):
            if process:
                places.end(process)


def expect(text, *words):
    """Fails unless `text` contains each of `words`."""
    for word in words:
        if word not in text:
            raise Failure(f"no '{word}' in:\n{text}")
