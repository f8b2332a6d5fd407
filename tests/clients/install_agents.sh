#!/usr/bin/env bash
# Installs the programs of agents.txt into the cache folder, each into a folder of its own; what is there stays.
# Says which cannot be installed; the status is that of the last one.
#
#     tests/clients/install_agents.sh PYTHON
set -euo pipefail

python=$1
cd "$(dirname "$0")"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/llama-duo/agents
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_loglevel=error
failed=0

# Only the program's own scripts run, which put its binary in place, and none of what it brings along.
from_npm() {
	npm install --global --prefix "$3" --ignore-scripts "$1@$2" &&
		npm rebuild --global --prefix "$3" "$1"
}

from_pypi() {
	"$python" -m venv "$3" && "$3/bin/pip" install --quiet --disable-pip-version-check "$1==$2"
}

while read -r program index package version; do
	place=$folder/$program-$version
	[ "$program" = "#" ] || [ -e "$place/.ready" ] && continue
	rm -rf "$place"
	mkdir -p "$place"
	if "from_$index" "$package" "$version" "$place" </dev/null >"$place.log" 2>&1; then
		touch "$place/.ready"
		rm "$place.log"
	else
		echo "$package $version cannot be installed: see $place.log"
		failed=1
	fi
done <agents.txt
exit $failed
