"""perftest's raw_ethernet_*: Ethernet frames on raw packet queue pairs.

Server and client do not communicate by TCP; the server is ready when its queue
pair exists.

raw_ethernet_burst_lat of perftest 4.5 does not end on any card with the
options of its help. Without a rate limit it forces a software limit and then
refuses that for this test. It signals one send in 100, and stops at its
queue's depth of 128. Its server drops replies once more of them are in flight
than it takes completions for in a round (16). So the test sets a hardware
rate, which perftest replaces by its own, signals all sends, and limits a burst
to that number.
"""

import subprocess
import time

import places
from places import Failure

SERVER_MAC, CLIENT_MAC = "02:00:00:00:00:51", "02:00:00:00:00:c1"
UDP = ("-J", "10.79.0.2", "-j", "10.79.0.1", "-K", "7000", "-k", "7001")
# As many receives as frames, so that no frame waits for a server that is not
# scheduled.
DEPTH = ("-n", "1000", "-r", "1024")
BURSTS = ("--rate_limit=5", "--burst_size=16", "--reply_every=4", "-Q", "1")
SETTINGS = (
    ("raw_ethernet_bw", ("-s", "64") + DEPTH),
    ("raw_ethernet_bw", ("-s", "1024") + DEPTH),
    ("raw_ethernet_bw", ("-s", "256") + DEPTH + UDP),
    ("raw_ethernet_lat", ("-s", "64")),
    ("raw_ethernet_lat", ("-s", "512") + UDP),
    ("raw_ethernet_burst_lat", ("-s", "64") + BURSTS + DEPTH),
    ("raw_ethernet_burst_lat", ("-s", "512") + BURSTS + DEPTH + UDP),
)


def _await_queue_pair(runner, side, server, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if server.poll() is not None:
            raise Failure("the server ended early:\n" + server.stdout.read())
        shown = subprocess.run(side.prefix() + [runner.rxe_user, "stat"],
                               capture_output=True, text=True).stdout
        for line in shown.splitlines():
            if "RAW_PACKET" in line and ("RTR" in line or "RTS" in line):
                return
        time.sleep(0.05)
    raise Failure(f"the server's queue pair was not ready within {limit} s")


def run(runner, place, how, program, options):
    ds, _ = runner.device_and_gid(place.server, how.family)
    dc, _ = runner.device_and_gid(place.client, how.family)

    def argv(device, role, mine, other):
        return [program, "-d", device, "-F", f"--{role}", "-B", mine, "-E",
                other] + list(options)

    server = runner.start(place.server, how,
                          argv(ds, "server", SERVER_MAC, CLIENT_MAC))
    client = None
    try:
        _await_queue_pair(runner, place.server, server)
        client = runner.start(place.client, how,
                              argv(dc, "client", CLIENT_MAC, SERVER_MAC))
        places.perftest_row(places.finish(client, "the client"))
        said = places.finish(server, "the server")
        if program != "raw_ethernet_burst_lat":  # whose server prints no figures
            places.perftest_row(said)
    except Failure as e:
        raise Failure(f"{e}\nthe server {places.last_words(server)}") from e
    finally:
        for process in (server, client):
            if process:
                places.end(process)
