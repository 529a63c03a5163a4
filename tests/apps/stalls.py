"""Detects when the machine itself stands still.

On a virtual machine a core can be taken away for longer than a connection
retries. A program that fails then proves nothing about the device. So a
process on each core, at real-time priority, sleeps for some milliseconds at a
time and reports when it woke late: no tested program can delay it.
"""

import os
import select
import subprocess
import sys
import threading
import time

from places import Failure

PERIOD = 0.02  # seconds
STALL = 0.1  # seconds that are reported


def watch(core):
    """The process on one core. Prints an empty line at its start, then the end
    of each stall (CLOCK_MONOTONIC) and its length in seconds."""
    parent = os.getppid()
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    print(flush=True)
    before = time.monotonic()
    while os.getppid() == parent:
        time.sleep(PERIOD)
        now = time.monotonic()
        if now - before > STALL:
            print(f"{now:.3f} {now - before:.3f}", flush=True)
        before = now


class Watch:
    """Watches from construction until close(). Any thread may ask."""

    def __init__(self):
        self.lock = threading.Lock()
        self.stalls = []  # (end, length)
        self.processes = [
            subprocess.Popen([sys.executable, __file__, str(core)],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, bufsize=0)
            for core in sorted(os.sched_getaffinity(0))]
        for process in self.processes:
            process.stdout.readline()  # it watches, or has ended

    def longest(self, since):
        """Seconds of the longest stall that ended after `since`
        (CLOCK_MONOTONIC); 0 if there was none."""
        with self.lock:
            for process in self.processes:
                self._read(process.stdout.fileno())
            return max((l for end, l in self.stalls if end > since), default=0)

    def _read(self, fd):
        while select.select([fd], [], [], 0)[0]:
            said = os.read(fd, 4096)
            if not said:
                return  # real-time priority is not allowed here
            for line in said.splitlines():
                end, length = line.split()
                self.stalls.append((float(end), float(length)))

    def attempt(self, text, function, final=(), chances=0):
        """Does one check. Returns (reason of failure or None, seconds). A
        failure during a stall is printed and repeated, three times at most;
        other failures `chances` times. Exceptions of `final` are passed on."""
        for last in (False, False, True):
            start = time.monotonic()
            try:
                function()
                return None, time.monotonic() - start
            except final:
                raise
            except Exception as e:  # other than Failure: the test's own fault
                seconds = time.monotonic() - start
                why = str(e) if isinstance(e, Failure) else repr(e)
                stall = self.longest(start)
                if last or not (stall or chances):
                    return why, seconds
                if stall:
                    because = (f"a core of this machine stood still for "
                               f"{stall:.2f} s meanwhile")
                else:
                    because = "its second chance"
                    chances -= 1
                print(f"again    {seconds:6.1f}s  {text}\n    {because}\n    " +
                      why.replace("\n", "\n    "), flush=True)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


if __name__ == "__main__":
    watch(int(sys.argv[1]))
