"""Figures of the RDMA CM and of rsockets, measured with rdmacm-utils."""

import re

from figures import Sample  # which finds tests/apps
import connecting
from places import Failure

# cmtime's steps from an id to an established connection.
STEPS = ("create id", "resolve addr", "resolve route", "create qp", "connect")


def _run(bench, server, client, endless=False, memory=False):
    return connecting.run(bench.runner, bench.place("loopback"),
                          bench.how(memory=memory),
                          connecting.CmCell(server, client, endless=endless))


def _step_ms(text, step):
    """The time from the first start to the last end of a step."""
    found = re.search(rf"^{step}\s*:\s*([\d.]+)", text, re.M)
    if not found:
        raise Failure(f"no time of {step} in:\n{text}")
    return float(found[1])


def connections_per_s(count):
    """cmtime: `count` connections at once, by one process to another."""
    def measure(bench):
        text = _run(bench, "cmtime -b @", f"cmtime -s @ -c {count}",
                    endless=True)
        ms = sum(_step_ms(text, step) for step in STEPS)
        return Sample(count / ms * 1e3, count)

    return measure


def time_to_connect():
    """cmtime: a single connection, from REQ to established, us."""
    def measure(bench):
        text = _run(bench, "cmtime -b @", "cmtime -s @ -c 1", endless=True)
        return Sample(_step_ms(text, "connect") * 1e3, 1)

    return measure


def rstream_bandwidth(size, options="", iterations=200, transfers=50,
                      memory=False):
    """rstream: transfers of `size` bytes in each direction by turns, Gbit/s."""
    def measure(bench):
        rstream = f"rstream {options} -S {size} -I {iterations} -C {transfers}"
        text = _run(bench, f"{rstream} -b @", f"{rstream} -s @",
                    memory=memory)
        found = re.search(r"s\s+([\d.]+)\s+[\d.]+\s*$", text.strip())
        if not found:
            raise Failure("no bandwidth in:\n" + text)
        messages = 2 * iterations * transfers
        return Sample(float(found[1]), messages, messages * size)

    return measure
