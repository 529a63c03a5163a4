"""Runs the tests of one module of rdma-core's Python suite, in this process.

usage: run_module.py SUITE MODULE [--dev NAME --gid INDEX]

Prints one line of JSON for each test: its id, its result (passed, failed,
skipped), and its text. The caller has set the search paths.
"""

import json
import os
import sys
import traceback
import unittest


class JsonResult(unittest.TestResult):
    """Prints the result of each test as soon as it has ended."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def say(self, test, verdict, text=""):
        name = test.id()
        # A class or module whose setup fails: "setUpClass (tests.x.Y)".
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
    # The suite may print to stdout.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The suite's options are parsed by its own parser.
    sys.argv[1:] = sys.argv[3:]
    sys.path[:0] = [suite, os.path.join(suite, "tests")]
    from args_parser import parser
    parser.parse_args()
    tests = unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}")
    tests.run(JsonResult(out))


if __name__ == "__main__":
    main()
