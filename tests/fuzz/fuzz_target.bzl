"""Targets for libFuzzer, which are tests without it."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_target(
        name,
        srcs,
        deps,
        inputs,
        seeds = ":no_seeds",
        test_srcs = [],
        **test_arguments):
    """A fuzz target, twice.

    NAME_test runs it without libFuzzer, with any compiler: over the stored
    corpus and over mutations of it from a fixed seed. NAME is the fuzzer, which
    tools/dev fuzz builds with --config=fuzz.

    Args:
      name: the stored corpus is corpus/NAME.
      srcs: sources, with LLVMFuzzerTestOneInput.
      deps: what they need.
      inputs: how many mutations the test runs.
      seeds: a library that defines MadeSeeds (seeds.h).
      test_srcs: what else the test is linked with.
      **test_arguments: of the cc_test.
    """
    cc_library(
        name = name + "_target",
        testonly = True,
        srcs = srcs,
        alwayslink = True,
        deps = deps,
    )
    cc_binary(
        name = name,
        testonly = True,
        # It has a main() only with --config=fuzz.
        tags = ["manual"],
        deps = [":%s_target" % name],
    )
    corpus = native.glob(
        ["corpus/%s/*" % name],
        allow_empty = True,
    )
    cc_test(
        name = name + "_test",
        srcs = test_srcs,
        args = ["--inputs=%d" % inputs] + ["$(rootpath %s)" % f for f in corpus],
        data = corpus,
        deps = [
            ":%s_target" % name,
            ":mutate_main",
            seeds,
        ],
        **test_arguments
    )
