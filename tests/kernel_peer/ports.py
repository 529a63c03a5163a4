"""The tests of our ports in the guest, since io_uring changes from kernel to
kernel: which of its calls a lane may use, and what they do."""

import os
import time

import pair
import stock
from guest import GuestGone
from places import Failure

FOLDER = os.path.join(pair.ROOT, "bazel-bin/rxe_user/ports")
TESTS = ["port_test", "uring_bulk_test"]
PROGRAMS = [os.path.join(FOLDER, name) for name in TESTS]
FILTER = "--gtest_filter=UringBulkTest.*:*/v?_uring:*/v?_bulk"
LIMIT = 300  # seconds; an emulated guest takes 30 for the first
SETTINGS = [s for s in stock.EVERY_SETTING
            if (s.mtu, s.family, s.server) == (1500, 4, "host")]


def run(ends, lines):
    """Yields (line, verdict, detail, seconds) of each."""
    for name in lines:
        start = time.monotonic()
        try:
            said = ends.guest.check(f"{name} '{FILTER}' --gtest_brief=1 2>&1", LIMIT)
            # A ring that the kernel refuses skips a test.
            refused = [line for line in said.splitlines() if "io_uring" in line]
            if refused:
                raise Failure(f"no io_uring: {refused[0]}")
        except GuestGone:
            raise
        except Failure as e:
            yield name, "failed", str(e), time.monotonic() - start
        else:
            yield name, "ok", "", time.monotonic() - start
