"""Vendors' libraries, which programs are linked to and our devices do not have."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//tools:abi_library.bzl", "abi_library")

def vendor_stub(name):
    """NAME.so.1 of NAME's stub.cc, NAME.map and exports.txt."""
    cc_library(
        name = "stub",
        srcs = ["stub.cc"],
        deps = ["//verbs_api:stub"],
        alwayslink = True,
    )
    abi_library(
        name = name + ".so.1",
        version_script = name + ".map",
        deps = [":stub"],
    )
    native.exports_files(["exports.txt"])
