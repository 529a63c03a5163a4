"""Runs the tests of one module of rdma-core's Python suite, in this process.

usage: run_module.py SUITE MODULE [--dev NAME --gid INDEX]

One line of JSON for each test: its id, what became of it (passed, failed,
skipped), and the text that belongs to it. Whoever starts this has seen to the
search paths.
"""

import json
import os
import sys
import traceback
import unittest


class JsonResult(unittest.TestResult):
    """Says what became of each test as soon as it is over."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def say(self, test, verdict, text=""):
        name = test.id()
        # A class or module whose set-up fails: "setUpClass (tests.x.Y)".
        self.out.write(json.dumps(
            {"test": name.removeprefix("tests."), "verdict": verdict,
             "text": text}) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.say(test, "started")

    def addSuccess(self, test):
        self.say(test, "passed")

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)

    def addFailure(self, test, error):
        self.say(test, "failed", "".join(traceback.format_exception(*error)))

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(subtest, error)


def main():
    suite, module = sys.argv[1:3]
    # The suite prints to stdout as it likes.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Its own options are read by its own parser.
    sys.argv[1:] = sys.argv[3:]
    sys.path[:0] = [suite, os.path.join(suite, "tests")]
    from args_parser import parser
    parser.parse_args()
    tests = unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}")
    tests.run(JsonResult(out))


if __name__ == "__main__":
    main()
