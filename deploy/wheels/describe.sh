#!/usr/bin/env bash
# What goes with the wheels of a folder: a software bill of materials (CycloneDX) of all that `pip install llama-duo`
# installs, and the SHA-256 of each file.
#
#     deploy/wheels/describe.sh PYTHON FOLDER
set -euo pipefail

work=$PWD/build/wheels
rm -rf "$work/installed"
"$1" -m venv --without-pip "$work/installed"
"$work/tools/bin/pip" --python "$work/installed/bin/python" install --quiet --disable-pip-version-check \
	--find-links "$2" -c constraints.txt llama-duo
cd "$2"
"$work/tools/bin/cyclonedx-py" environment --output-reproducible --output-file llama-duo.cdx.json "$work/installed"
sha256sum -- *.whl *.json >SHA256SUMS
