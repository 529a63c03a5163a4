#!/usr/bin/env python3
"""Writes compile_commands.json from the commands that Bazel would run.

usage: bazel aquery 'mnemonic("CppCompile", //...)' --output=jsonproto |
           tools/compile_commands.py WORKSPACE OUTPUT_BASE EXECUTION_ROOT

Paths are those of the work tree, so that an editor finds its open files. Flags
that only GCC knows are omitted, because clangd reads the file.
"""

import json
import os
import sys

ONLY_GCC = {
    "-fno-canonical-system-headers",
    "-ffat-lto-objects",
    "-Wno-restrict",
    "-Wno-free-nonheap-object",
    "-Wno-tsan",
    "-Wno-maybe-uninitialized",
    "-Wno-stringop-overflow",
    # Editors show the warnings of clang; they are not errors there.
    "-Werror",
}
WITH_VALUE = {"-MF", "-o"}
WITHOUT_VALUE = {"-MD", "-c"}


def command(arguments, workspace, output_base, execution_root):
    """An entry of the list; None if the source is not in the work tree."""
    source = arguments[arguments.index("-c") + 1]
    if not os.path.exists(os.path.join(workspace, source)):
        return None

    def real(argument):
        for prefix, folder in (("external/", output_base),
                               ("bazel-out/", execution_root)):
            if argument.startswith(prefix):
                return os.path.join(folder, argument)
        return argument

    kept = []
    rest = iter(arguments)
    for argument in rest:
        if argument in WITH_VALUE:
            next(rest)
        elif argument in ONLY_GCC or argument in WITHOUT_VALUE:
            continue
        elif argument != source and not argument.startswith("-frandom-seed="):
            kept.append(real(argument))
    return {
        "directory": workspace,
        "file": source,
        "arguments": kept + ["-c", source],
    }


def main():
    workspace, output_base, execution_root = sys.argv[1:]
    commands = {}
    for action in json.load(sys.stdin).get("actions", []):
        entry = command(action["arguments"], workspace, output_base,
                        execution_root)
        if entry:
            commands.setdefault(entry["file"], entry)
    if not commands:
        sys.exit("compile_commands.py: bazel aquery lists no C++ file")
    path = os.path.join(workspace, "compile_commands.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump([commands[name] for name in sorted(commands)], file, indent=1)
        file.write("\n")
    os.rename(path + ".new", path)
    print(f"compile_commands.json: {len(commands)} files")


if __name__ == "__main__":
    main()
