#!/usr/bin/env python3
# The software bill of materials of build/ff: whether it is SPDX, names every static library of the
# link line, and has a version and a licence of each; and that it is the same when made again.
"""usage: sbom.py BUILD CURL LIBPQ VERSION, as cmd/package/sbom.sh has them"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
DOCUMENT = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT"}
PACKAGE = ("SPDXID", "name", "versionInfo", "downloadLocation", "licenseDeclared", "sourceInfo",
           "comment")


def linked(build):
    """The names of the archives that the link line of ff takes, without ff's own."""
    text = pathlib.Path(build, "build.ninja").read_text(encoding="utf-8")
    line = re.search(r"^build ff[ :].*?^  LINK_LIBRARIES = (.*?)$", text, re.M | re.S).group(1)
    names = set()
    for word in line.split():
        if word.startswith("-l:"):
            names.add(word[3:])
        elif word.startswith("-l"):
            names.add(f"lib{word[2:]}.a")
        elif not re.fullmatch(r"libff_.*\.a", word):
            names.add(pathlib.Path(word).name)
    return names


def check(sbom, names, version):
    for key, value in DOCUMENT.items():
        assert sbom[key] == value, (key, sbom[key])
    assert sbom["name"] == f"ff-{version}" and version in sbom["documentNamespace"], sbom["name"]
    created = sbom["creationInfo"]["created"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", created), created
    ids = set()
    for package in sbom["packages"]:
        for key in PACKAGE:
            assert package.get(key), (key, package)
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"]), package
        assert package["SPDXID"] not in ids, package
        ids.add(package["SPDXID"])
    known = {name for package in sbom["packages"] for name in package["comment"].split()}
    missing = names - known
    assert not missing, f"no package of the bill has {sorted(missing)}"
    assert {"libstdc++.a", "libgcc.a", "libc.a", "libcurl.a", "libpq.a"} <= known, known
    related = {"SPDXRef-ff"}
    for one in sbom["relationships"]:
        assert one["spdxElementId"] in ids | {"SPDXRef-DOCUMENT"}, one
        related.add(one["relatedSpdxElement"])
    assert related == ids, related ^ ids


def main():
    build, curl, libpq, version = sys.argv[1:]
    path = pathlib.Path(build, "ff.spdx.json")
    if shutil.which("dpkg-query") is None:
        print("skipped: there is no dpkg, which knows the packages")
        return SKIPPED
    if not pathlib.Path(build, "build.ninja").exists():
        print("skipped: this is not a build with Ninja")
        return SKIPPED
    names = linked(build)
    assert {"libssl.a", "libsqlite3.a", "libprotobuf-lite.a"} <= names, names
    with tempfile.TemporaryDirectory(prefix="ff-sbom-") as folder:
        texts = []
        for name in ("first", "second"):
            made = pathlib.Path(folder, name)
            subprocess.run(["bash", ROOT / "cmd/package/sbom.sh", build, curl, libpq, version,
                            made], check=True)
            texts.append(made.read_text(encoding="utf-8"))
    assert texts[0] == texts[1], "two bills of the same build differ"
    made = json.loads(texts[0])
    built = json.loads(path.read_text(encoding="utf-8"))
    check(made, names, version)
    # The commit, and so the time, may have changed since the build.
    made["creationInfo"]["created"] = built["creationInfo"]["created"]
    assert made == built, f"{path} is not the bill of this build"
    return 0


if __name__ == "__main__":
    sys.exit(main())
