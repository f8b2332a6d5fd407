#!/bin/sh
# Fetches the libraries of the page from npm and checks them against SHA256SUMS. For another version change it here,
# run `./fetch.sh --accept`, which notes the new sums, and look at what has changed.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/LICENSES"

# NAME@VERSION FILE...: the license is the first one.
take() {
	package=$1 license=$2
	shift 2
	archive=$(npm pack --silent --pack-destination "$work" "$package")
	rm -rf "$work/package"
	tar -xzf "$work/$archive" -C "$work"
	{ printf '%s\n\n' "=== $package"; cat "$work/package/$license"; echo; } >>"$work/LICENSES"
	for file in "$@"; do cp "$work/package/$file" .; done
}

take markdown-it@15.0.3 LICENSE dist/browser/markdown-it.umd.min.js
# These are in markdown-it's file.
take entities@8.1.0 LICENSE
take linkify-it@6.1.0 LICENSE
take mdurl@2.1.0 LICENSE
take punycode.js@2.3.1 LICENSE-MIT.txt
take uc.micro@3.0.0 LICENSE.txt
take @highlightjs/cdn-assets@11.12.0 LICENSE highlight.min.js
take temml@0.13.5 LICENSE dist/temml.min.js dist/Temml-Local.css dist/Temml.woff2
cp "$work/LICENSES" .

files="LICENSES Temml-Local.css Temml.woff2 highlight.min.js markdown-it.umd.min.js temml.min.js"
# shellcheck disable=SC2086 # a list
if [ "${1:-}" = --accept ]; then sha256sum $files >SHA256SUMS; fi
sha256sum --check --quiet SHA256SUMS
