"""GitHub's workflows: the scripts that they run exist, and the one for releases
works with a stand-in for GitHub's gh."""

import glob
import hashlib
import os
import re
import subprocess

import yaml

from places import Failure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RELEASE = os.path.join(ROOT, "tools/packaging/ci/release")


def expect(truth, text):
    if not truth:
        raise Failure(text)


def steps(workflow):
    for name, job in workflow["jobs"].items():
        needs = job.get("needs", [])
        for other in [needs] if isinstance(needs, str) else needs:
            expect(other in workflow["jobs"], f"{name} needs {other}")
        expect("runs-on" in job and job["timeout-minutes"] > 0, name)
        yield from job["steps"]


def scripts_exist(_prefix, _folder):
    """each step runs a script of this tree, or an action of GitHub's"""
    files = glob.glob(os.path.join(ROOT, ".github/workflows/*.yml"))
    expect({"ci.yml", "release.yml"} == set(map(os.path.basename, files)),
           str(files))
    for file in files:
        with open(file) as data:
            workflow = yaml.safe_load(data)
        expect(workflow["permissions"] == {"contents": "read"}, file)
        count = 0
        for step in steps(workflow):
            expect(("run" in step) != ("uses" in step), f"{file}: {step}")
            if "uses" in step:
                expect(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]),
                       f"{file}: {step}")
                continue
            count += 1
            # The name of a tag or branch may contain shell commands.
            expect("${{ github." not in step["run"], f"{file}: {step}")
            script, _, rest = step["run"].partition(" ")
            expect(os.access(os.path.join(ROOT, script), os.X_OK) and
                   "\n" not in rest.strip(), f"{file}: no script {script}")
        expect(count > 0, f"{file} runs nothing")


def cloned(_prefix, _folder):
    """jobs that test have git, without which checkout leaves no clone"""
    count = 0
    for file in glob.glob(os.path.join(ROOT, ".github/workflows/*.yml")):
        with open(file) as data:
            jobs = yaml.safe_load(data)["jobs"]
        for job in jobs.values():
            if any(step.get("run") == "tools/dev test" for step in job["steps"]):
                count += 1
                image = job["container"]["image"]
                expect(image.endswith("-scm"), f"{file}: {image}")
    expect(count == 2, f"{count} jobs test")


def release(tag, folder, tools):
    return subprocess.run(
        [RELEASE, tag, folder], capture_output=True, text=True,
        env={"PATH": f"{tools}:/usr/bin:/bin", "LOG": tools + "/log"})


def attached(_prefix, folder):
    """a release gets all files, unchanged and of the version of its tag"""
    tools, packages = folder + "/tools", folder + "/packages"
    os.mkdir(tools)
    os.mkdir(packages)
    with open(tools + "/gh", "w") as gh:
        gh.write('#!/bin/sh\necho "$*" >>"$LOG"\n[ "$2" != view ]\n')
    os.chmod(tools + "/gh", 0o755)
    names = ["rxe_user-1.2.3-amd64.tar.gz", "rxe_user-1.2.3-arm64.tar.gz"]
    with open(packages + "/SHA256SUMS", "w") as sums:
        for name in names:
            with open(f"{packages}/{name}", "w") as out:
                out.write(name)
            digest = hashlib.sha256(name.encode()).hexdigest()
            sums.write(f"{digest}  {name}\n")
    done = release("v1.2.3", packages, tools)
    expect(done.returncode == 0, done.stdout + done.stderr)
    with open(tools + "/log") as log:
        lines = log.read().splitlines()
    expect([line.split()[1] for line in lines] == ["view", "create", "upload"],
           str(lines))
    expect(set(lines[2].split()) >= {"v1.2.3", "SHA256SUMS", *names}, lines[2])

    done = release("v1.2.4", packages, tools)
    expect(done.returncode == 1 and "::error" in done.stdout, "another version")
    with open(f"{packages}/{names[0]}", "a") as out:
        out.write("more")
    done = release("v1.2.3", packages, tools)
    expect(done.returncode == 1 and "::error" in done.stdout, "another file")


TESTS = [scripts_exist, cloned, attached]
