"""The shared libraries that take the place of the system's."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def abi_library(
        name,
        version_script,
        deps,
        linkopts = [],
        linked_libraries = [],
        visibility = None):
    """Links a shared library that shows its C ABI and nothing else.

    C++ runtime, Abseil and our own code go in statically and stay hidden, so
    that an application may use other versions of them. The library stays
    loaded once it is (-z nodelete): its threads and thread-local data would
    not survive dlclose.

    Args:
      name: the soname, which is the file name: "libibverbs.so.1".
      version_script: the linker's version script (.map). What it does not
        name is local.
      deps: cc_library targets. One whose symbols only the outside refers to
        needs alwayslink = True.
      linkopts: more of them.
      linked_libraries: other libraries of ours whose C ABI it calls. The
        loader finds them as it finds this one: there is no run path.
      visibility: as usual.
    """
    cc_binary(
        name = name,
        additional_linker_inputs = [version_script] + linked_libraries,
        linkopts = linkopts + ["$(location %s)" % l for l in linked_libraries] + [
            # GNU ld, which has full support for symbol versions.
            "-fuse-ld=bfd",
            "-Wl,-soname," + name,
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-z,nodelete",
            "-Wl,-z,defs",
            # Link-time optimization (.bazelrc).
            "-flto=auto",
            "-O3",
        ],
        linkshared = True,
        visibility = visibility,
        # Last: its linkopts bring libstdc++.a after everything that needs it.
        deps = deps + [
            "//third_party/older_glibc:library",
            "//third_party/absl_pic:shared_runtime",
        ],
    )
