"""Vendors' libraries, which programs are linked to and our devices do not have."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//tools:abi_library.bzl", "abi_library")

def vendor_stub(name):
    """NAME.so.1 of NAME.cc, with the symbols and versions of NAME.exports.txt."""
    exports = name + ".exports.txt"
    native.genrule(
        name = name + "_version_script",
        srcs = [exports],
        outs = [name + ".map"],
        cmd = "awk -f $(location version_script.awk) $< > $@",
        tools = ["version_script.awk"],
    )
    cc_library(
        name = name,
        srcs = [name + ".cc"],
        deps = [":stub"],
        alwayslink = True,
    )
    abi_library(
        name = name + ".so.1",
        version_script = name + ".map",
        deps = [":" + name],
    )
    native.exports_files([exports])
