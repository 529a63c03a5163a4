"""The cells: the perftest matrix and the verbs example programs.

A cell is one program with one set of options. Stock perftest refuses some
combinations while it parses its options. `refusal` names those, so every cell
of the matrix is either run or known to be refused.
"""

import itertools
import random
from dataclasses import dataclass

MTUS = ("", "256", "512", "1024", "2048", "4096")
PERFTESTS = tuple(
    f"ib_{verb}_{kind}"
    for verb in ("send", "write", "read", "atomic")
    for kind in ("bw", "lat")
)
# Axis name -> the option it adds. "": no option.
SWITCHES = {
    "all sizes": "-a",
    "bidirectional": "-b",
    "events": "-e",
    "qps": "-q 8",
    "inline": "-I 64",
    "srq": "--use-srq",
    "timed": "-D",
}


@dataclass(frozen=True)
class Cell:
    """One program and its options, without device, port and address."""

    program: str
    options: tuple

    def __str__(self):
        return " ".join((self.program,) + self.options)


def refusal(program, switches):
    """Why stock perftest 4.5 refuses `switches` of `program`, or None."""
    verb, kind = program.split("_")[1:3]
    if "events" in switches and verb == "write":
        return "events on write"
    if "inline" in switches and verb in ("read", "atomic"):
        return "inline on read and atomic"
    if "all sizes" in switches and verb == "atomic":
        return "all sizes on atomic"
    if "all sizes" in switches and "timed" in switches:
        return "all sizes with a timed run"
    if "events" in switches and "timed" in switches:
        return "events with a timed run"
    if kind == "lat" and ("qps" in switches or "bidirectional" in switches):
        return "several QPs or both directions on latency tests"
    if "srq" in switches and verb != "send":
        return "a shared receive queue off send"
    return None


def _options(program, switches, mtu, atomic, seconds, iterations):
    options = []
    for name in SWITCHES:
        if name not in switches:
            continue
        options += SWITCHES[name].split()
        if name == "timed":
            options.append(str(seconds))
    if mtu:
        options += ["-m", mtu]
    if atomic:
        options += ["-A", atomic]
    if iterations and "timed" not in switches:
        options += ["-n", str(iterations)]
    return Cell(program, tuple(options))


def _variants():
    for program in PERFTESTS:
        if "atomic" in program:
            yield program, "FETCH_AND_ADD"
            yield program, "CMP_AND_SWAP"
        else:
            yield program, ""


def refused_cells():
    """Every switch that a program refuses, alone and in pairs: (cell, reason).
    """
    out = []
    for program, atomic in _variants():
        for n in (1, 2):
            for switches in itertools.combinations(SWITCHES, n):
                why = refusal(program, switches)
                if why:
                    cell = _options(program, switches, "", atomic, 1, 0)
                    out.append((cell, why))
    return out


def every_cell(seconds, iterations=0):
    """Each combination of switches and MTU that perftest accepts. `all sizes`
    runs this many iterations per size (0: perftest's default)."""
    out = []
    for program, atomic in _variants():
        for n in range(len(SWITCHES) + 1):
            for switches in itertools.combinations(SWITCHES, n):
                if refusal(program, switches):
                    continue
                for mtu in MTUS:
                    n_all = iterations if "all sizes" in switches else 0
                    out.append(_options(program, switches, mtu, atomic,
                                        seconds, n_all))
    return out


def single_switch_cells(seconds=1, iterations=500):
    """Each program without switches, and with each one that it accepts."""
    out = []
    for program, atomic in _variants():
        for switches in [()] + [(name,) for name in SWITCHES]:
            if not refusal(program, switches):
                out.append(_options(program, switches, "", atomic, seconds,
                                    iterations))
    return out


def pairwise_cells(seconds):
    """A small set in which each pair of accepted settings of each program
    occurs together at least once."""
    rng = random.Random(1)
    out = []
    for program, atomic in _variants():
        names = [s for s in SWITCHES if not refusal(program, (s,))]
        space = []
        for n in range(len(names) + 1):
            for switches in itertools.combinations(names, n):
                if not refusal(program, switches):
                    space += [(frozenset(switches), mtu) for mtu in MTUS]
        rng.shuffle(space)

        def pairs(candidate):
            switches, mtu = candidate
            settings = [(s, s in switches) for s in names] + [("mtu", mtu)]
            return set(itertools.combinations(settings, 2))

        wanted = set().union(*(pairs(c) for c in space))
        while wanted:
            best = max(space, key=lambda c: len(pairs(c) & wanted))
            wanted -= pairs(best)
            switches, mtu = best
            iterations = 20 if "all sizes" in switches else 0
            out.append(_options(program, switches, mtu, atomic, seconds,
                                iterations))
    return out


def pingpong_cells():
    """The example programs of rdma-core, as a user runs them."""
    plain = [
        ("ibv_rc_pingpong",),
        ("ibv_rc_pingpong", "-e"),
        ("ibv_rc_pingpong", "-c", "-s", "1048576", "-n", "200"),
        ("ibv_rc_pingpong", "-n", "20000"),
        ("ibv_rc_pingpong", "-N"),
        ("ibv_rc_pingpong", "-r", "1"),
        ("ibv_srq_pingpong",),
        ("ibv_srq_pingpong", "-e"),
        ("ibv_xsrq_pingpong",),
        ("ibv_xsrq_pingpong", "-e"),
        ("ibv_uc_pingpong",),
        ("ibv_uc_pingpong", "-e"),
        ("ibv_uc_pingpong", "-c", "-s", "16384", "-n", "2000"),
        ("ibv_ud_pingpong",),
        ("ibv_ud_pingpong", "-e"),
        ("ibv_ud_pingpong", "-c", "-s", "1000", "-n", "2000"),
    ]
    return [Cell(p[0], p[1:]) for p in plain]


def core_cells():
    """The few cells for every environment."""
    return [
        Cell("ibv_rc_pingpong", ("-c",)),
        Cell("ibv_srq_pingpong", ("-e",)),
        Cell("ib_send_bw", ("-e", "-b", "-s", "8192")),
        Cell("ib_write_bw", ("-s", "1048576", "-n", "500")),
        Cell("ib_read_lat", ("-n", "500")),
        Cell("ib_atomic_bw", ("-q", "8", "-A", "CMP_AND_SWAP")),
        Cell("ibv_xsrq_pingpong", ("-n", "200")),
        Cell("ibv_uc_pingpong", ("-c",)),
        Cell("ibv_ud_pingpong", ("-c", "-s", "1000")),
    ] + xrc_cells()[:1] + unreliable_cells()


def xrc_cells():
    """The perftest programs that support extended reliable connections."""
    return [
        Cell(program, ("-c", "XRC") + options)
        for program, options in (
            ("ib_send_bw", ("-s", "4096", "-n", "1000")),
            ("ib_send_bw", ("-q", "4", "-e", "-s", "65536", "-n", "500")),
            ("ib_send_bw", ("-b", "-s", "8192", "-n", "500")),
            ("ib_send_lat", ("-s", "64", "-n", "1000")),
            ("ib_write_bw", ("-s", "65536", "-n", "1000")),
            ("ib_write_lat", ("-s", "64", "-n", "500")),
            ("ib_read_bw", ("-s", "65536", "-n", "1000")),
            ("ib_read_lat", ("-s", "64", "-n", "500")),
            ("ib_atomic_bw", ("-n", "500")),
            ("ib_atomic_lat", ("-A", "CMP_AND_SWAP", "-n", "500")),
        )
    ]


def unreliable_cells():
    """UC and UD: lost messages are not repeated, and ib_send_bw would wait for
    them. So no more are in flight than a socket's buffer holds."""
    return [
        Cell(program, ("-c", service) + options)
        for program, service, options in (
            ("ib_send_bw", "UC", ("-s", "4096", "-n", "20")),
            ("ib_send_lat", "UC", ("-s", "64", "-n", "1000")),
            ("ib_write_bw", "UC", ("-s", "65536", "-n", "1000")),
            ("ib_write_lat", "UC", ("-s", "4097", "-n", "1000")),
            ("ib_send_bw", "UD", ("-s", "1024", "-n", "50")),
            ("ib_send_lat", "UD", ("-s", "64", "-n", "1000")),
            ("ib_send_lat", "UD", ("-e", "-s", "1024", "-n", "1000")),
        )
    ]
