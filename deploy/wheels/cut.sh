#!/usr/bin/env bash
# `make release VERSION=…`: sets the version, dates its part of the changelog, commits both, and tags the commit.
set -euo pipefail

fail() {
	echo "$1" >&2
	exit 1
}

[[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "A version is three numbers, such as 0.2.0"
[ -z "$(git status --porcelain)" ] || fail "There are changes that are not committed"
! git rev-parse --quiet --verify "refs/tags/v$1" >/dev/null || fail "There is a tag v$1"
grep -q '^## .*, unreleased$' CHANGELOG.md || fail "CHANGELOG.md has no unreleased part"

sed -i "0,/^version = .*/s//version = \"$1\"/" pyproject.toml
sed -i "0,/^## .*, unreleased\$/s//## $1, $(date --utc +%F)/" CHANGELOG.md
git commit --quiet --message "Release $1" pyproject.toml CHANGELOG.md
git tag --annotate "v$1" --message "llama-duo $1"
