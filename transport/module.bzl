"""A module of the transport: one library and its unit tests."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

def unit_tests():
    """A test for each *_test.cc of the package."""
    for source in native.glob(
        ["*_test.cc"],
        allow_empty = True,
    ):
        cc_test(
            name = source[:-len(".cc")],
            size = "small",
            srcs = [source],
            deps = [
                "//transport/testing",
                "@gtest//:gtest_main",
            ] + (["//transport/testing:scarce_memory"] if source == "out_of_memory_test.cc" else []),
        )

def transport_module(name, deps):
    """The package's files as one library, and unit_tests().

    Args:
      name: of the library.
      deps: of the library: the layers below, and the modules of its own layer
        that it may see.
    """
    cc_library(
        name = name,
        srcs = native.glob(
            ["*.cc"],
            exclude = ["*_test.cc"],
        ),
        hdrs = native.glob(["*.h"]),
        deps = deps,
    )
    unit_tests()
