"""Faults on command at our end alone: rxe recovers from what the rules do, and
each packet on the link has a good ICRC.

Each rule has to fire, and the programs have to succeed. A rule that corrupts
packets is for received ones only: those on the link stay as rxe has sent them.
"""

import os
import time

import wire
from guest import GuestGone
from places import Failure
from stock import Setting

# The settings without --full: each kernel and each direction once.
SETTINGS = [Setting("6.1", 1500, 4, "host"), Setting("6.12", 4200, 6, "guest")]

WRITE, SEND, READ = "ib_write_bw", "ib_send_bw", "ib_read_bw"
OPTIONS = "-s 16384 -n 40"
# Faults of our requests and rxe's responses.
AS_CLIENT = (
    (WRITE, "drop tx op=data nth=5"),
    (WRITE, "drop tx op=data psn=+5 iter=1"),
    (WRITE, "duplicate tx op=data nth=6"),
    (WRITE, "delay 20ms tx op=data nth=7"),
    (WRITE, "reorder 2 tx op=data nth=8"),
    (WRITE, "ce tx op=data nth=3"),
    (SEND, "drop tx op=data nth=5; drop tx op=data nth=9"),
    (SEND, "drop rx op=ack nth=2"),
    (SEND, "corrupt icrc rx op=ack nth=2"),
    (READ, "drop tx op=request nth=3"),
    (READ, "drop rx op=response nth=7"),
    (READ, "duplicate rx op=response nth=7"),
)
# Faults of rxe's requests and our responses.
AS_SERVER = (
    (WRITE, "drop rx op=data nth=5"),
    (WRITE, "duplicate rx op=data nth=5"),
    (WRITE, "corrupt icrc rx op=data nth=6"),
    (WRITE, "no-ack rx op=data nth=6"),
    (WRITE, "nak PSN_SEQUENCE rx op=data nth=7"),
    (WRITE, "drop tx op=ack nth=2"),
    (SEND, "rnr 1ms rx op=RC_SEND_FIRST nth=3"),
    (SEND, "duplicate tx op=ack nth=2"),
    (READ, "drop rx op=request nth=2"),
    (READ, "drop tx op=response nth=7"),
    (READ, "ce tx op=response nth=4"),
)


def rules_of(setting):
    return AS_SERVER if setting.server == "host" else AS_CLIENT


def lines(setting):
    return [f"{program} {OPTIONS}: {rules}"
            for program, rules in rules_of(setting)]


def run(ends, setting, work, wanted):
    """Yields (line, verdict, why, seconds) of the lines in `wanted`."""
    for line, (program, rules) in zip(lines(setting), rules_of(setting)):
        if line not in wanted:
            continue
        start = time.monotonic()
        try:
            run_one(ends, setting, work, program, rules)
            yield line, "ok", "", time.monotonic() - start
        except GuestGone:
            raise
        except Failure as e:
            yield line, "failed", str(e), time.monotonic() - start


def run_one(ends, setting, work, program, rules):
    path = os.path.join(work, "faults.pcap")
    capture = wire.Capture(ends.network, path)
    try:
        ends.run_stock(setting, program, OPTIONS,
                       ["--faults", rules, "--expect", "wc(*) == wc(SUCCESS)"])
    finally:
        capture.close()
    packets, summary = wire.packets_of(ends.runner, path)
    wire.check_icrcs(packets, summary, "")
