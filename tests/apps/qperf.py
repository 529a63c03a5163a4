"""qperf: its RC, UC and UD tests, connected with and without the RDMA CM.

qperf 0.4.11 uses the CM for RC only. Without it, qperf addresses queue pairs
by LID, which RoCE does not have: it must end with an error, as on every RoCE
device.
"""

import re

import places
from applications import Check
from places import Failure

NAME = "qperf"
PROGRAMS = ("qperf",)
PORT = 19765

TESTS = ("rc_bi_bw", "rc_bw", "rc_lat", "uc_bi_bw", "uc_bw", "uc_lat",
         "ud_bi_bw", "ud_bw", "ud_lat", "rc_rdma_read_bw", "rc_rdma_read_lat",
         "rc_rdma_write_bw", "rc_rdma_write_lat", "rc_rdma_write_poll_lat",
         "uc_rdma_write_bw", "uc_rdma_write_lat", "uc_rdma_write_poll_lat",
         "rc_compare_swap_mr", "rc_fetch_add_mr")
BRIEF = ("rc_bw", "rc_rdma_read_lat", "rc_fetch_add_mr")


def _run(test, options, error=""):
    def run(runner, place, how):
        ds, _ = runner.device_and_gid(place.server, how.family)
        dc, _ = runner.device_and_gid(place.client, how.family)
        server = runner.start(place.server, how, ["qperf", "-lp", str(PORT)])
        client = None
        try:
            places.await_listen(server, PORT)
            client = runner.start(place.client, how, [
                "qperf", place.server.ipv4, "-lp", str(PORT), "-li", f"{dc}:1",
                "-ri", f"{ds}:1", "-t", "1"] + options + [test])
            if not error:
                text = places.finish(client, "the client")
                value = re.search(r"= +([\d.]+) ", text)
                if not value or float(value.group(1)) == 0:
                    raise Failure("no result in:\n" + text)
            else:
                text, _ = client.communicate(timeout=30)
                if client.returncode == 0 or error not in text:
                    raise Failure(f"not the error (exit {client.returncode}):"
                                  f"\n{text}")
        except Failure as e:
            places.end(server)
            raise e
        finally:
            for process in (server, client):
                if process:
                    places.end(process)

    return Check(" ".join(["qperf"] + options + [test]), run,
                 test in BRIEF and "-cm1" in options)


def checks():
    out = []
    for test in TESTS:
        error = ("failed to create address handle" if test.startswith("ud") else
                 "failed to modify QP to RTR")
        out.append(_run(test, [], error))
        out.append(_run(test, ["-cm1"],
                        "" if test.startswith("rc") else error))
    return out
