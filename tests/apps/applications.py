"""Applications over our device: what is common to ucx.py, mpi.py and others.

Each of those has NAME, PROGRAMS (what must be installed) and checks(), a list
of Check. `tests/apps/run NAME` runs all of them, `tests/apps/run` those that
are brief.
"""

import os
import shutil
from dataclasses import dataclass
from typing import Callable

import places
from places import Failure, How

# Indices of places.PLACES, and how: where every application is run.
LOOPBACK, OWN, VETH_1500, VETH_9000 = range(4)
SPOTS = tuple((p, How(user, family))
              for family in (4, 6)
              for p, user in ((LOOPBACK, "nobody"), (VETH_1500, "root"),
                              (LOOPBACK, "root"), (VETH_9000, "nobody")))


@dataclass(frozen=True)
class Check:
    """One run of an application; `run` takes the runner, a place and how, and
    raises Failure."""

    text: str
    run: Callable
    brief: bool = False
    # Where it runs; empty: at one of SPOTS, one check after the other.
    spots: tuple = ()


def missing(programs):
    """Those that are not installed; a path is a file, of a library say."""
    return [p for p in programs
            if not (os.path.exists(p) if os.path.isabs(p) else
                    shutil.which(p))]


def spread(checks, brief):
    """(place index, how, check) of what is to run."""
    out = []
    for i, check in enumerate(c for c in checks if c.brief or not brief):
        # One further each round: checks come in rows of their own.
        at = (i + i // len(SPOTS)) % len(SPOTS)
        spots = check.spots or (SPOTS[at],)
        for p, how in (spots[i % len(spots)],) if brief else spots:
            out.append((p, how, check))
    return out


def with_environment(environment, argv):
    return ["env"] + [f"{k}={v}" for k, v in environment.items()] + argv


def pair(runner, place, how, server_argv, client_argv, port, ends=True):
    """Runs a server that listens on TCP `port`, and its client. `ends`: the
    server ends with its client. What the client and the server have said."""
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
    """Fails unless each of `words` is in `text`."""
    for word in words:
        if word not in text:
            raise Failure(f"no '{word}' in:\n{text}")
