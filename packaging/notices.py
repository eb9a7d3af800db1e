#!/usr/bin/env python3
"""Prints the copyright notices and licences of all linked code from other repositories, as its authors wrote them.

packaging/sbom.py describes LINKED and RUNTIME. The files of each crate come from cargo's registry, those of musl and libunwind from
packaging/licences. If several crates have the same text, it is printed once.

usage: cargo metadata --locked --format-version 1 | packaging/notices.py LINKED RUNTIME
"""

import json
import os
import re
import sys

KINDS = re.compile(r"^(un)?(licen[cs]e|copying|copyright|notice)", re.IGNORECASE)


def lines(path):
    with open(path) as file:
        return {tuple(line.split()) for line in file}


def texts(package):
    """The contents of a package's notices. A file may be a link to a missing file outside of the package."""
    directory = os.path.dirname(package["manifest_path"])
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if KINDS.match(name) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read().strip()


def main(linked, runtime):
    with open(f"{runtime}/metadata.json") as file:
        packages = json.load(file)["packages"] + json.load(sys.stdin)["packages"]
    wanted = lines(linked) | lines(f"{runtime}/linked")
    of = {}
    for package in packages:
        id = (package["name"], package["version"])
        if id not in wanted or package["source"] is None:
            continue
        found = list(texts(package))
        if not found:
            # The crate contains no licence text, only the fields of its manifest.
            found = [f"Licence: {package['license']}\nAuthors: {', '.join(package['authors']) or 'not named'}"]
        for text in found:
            of.setdefault(text, set()).add(" ".join(id))
    for name in sorted(os.listdir("packaging/licences")):
        with open(f"packaging/licences/{name}") as file:
            of.setdefault(file.read().strip(), set()).add(name)
    print("Ferrule's executables contain software by others. These are their notices.")
    for text, names in sorted(of.items(), key=lambda pair: sorted(pair[1])):
        print(f"\n{'=' * 80}\n{', '.join(sorted(names))}\n{'=' * 80}\n\n{text}")


main(*sys.argv[1:])
