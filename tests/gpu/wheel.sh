#!/usr/bin/env bash
# Prints the path of a wheel of llama-cpp-python for Vulkan; builds it if there is none for these arguments, which
# pip's own cache does not know: CFLAGS, CXXFLAGS and CMAKE_ARGS, the compiler, the CPU, and the version.
#
#     CMAKE_ARGS=… tests/gpu/wheel.sh PIP
set -euo pipefail

pip=$1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/llama-duo/wheels
headers=$folder/vulkan-headers/usr/include

fail() {
	echo "$1" >&2
	exit 1
}

have_headers() {
	echo 'vk::LayerSettingEXT setting;' |
		"${CXX:-c++}" -fsyntax-only -I "$1" -include vulkan/vulkan.hpp -x c++ - 2>/dev/null
}

# Debian 12's headers are too old. Those of Debian 13 are unpacked, not installed, from the mirror that apt uses.
unpack_headers() {
	mkdir -p "$folder"/vulkan-headers/apt/{sources,lists/partial,archives/partial}
	cd "$folder/vulkan-headers"
	sed 's/bookworm/trixie/' /etc/apt/sources.list.d/debian.sources |
		awk 'BEGIN { RS = ""; ORS = "\n\n" } /Suites: trixie /' >apt/sources/trixie.sources
	options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$PWD/apt/sources"
		-o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt" -o Debug::NoLocking=1)
	timeout 120 apt-get "${options[@]}" update
	timeout 120 apt-get "${options[@]}" download libvulkan-dev
	dpkg -x libvulkan-dev_*.deb .
}

command -v glslc >/dev/null ||
	fail "glslc is missing. On Debian: apt install mesa-vulkan-drivers libvulkan-dev glslc spirv-headers"
export CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_VULKAN=on"
if ! have_headers /usr/include; then
	have_headers "$headers" || (unpack_headers) >/dev/null 2>&1 || true
	have_headers "$headers" ||
		fail "Vulkan headers of version 1.4 are missing: unpack Debian 13's libvulkan-dev into $folder/vulkan-headers"
	CMAKE_ARGS+=" -DVulkan_INCLUDE_DIR=$headers"
fi
version=$(grep '^llama_cpp_python==' constraints.txt)
facts="$version ${CFLAGS:-} ${CXXFLAGS:-} $CMAKE_ARGS $("${CXX:-c++}" --version) $(grep -m 1 '^flags' /proc/cpuinfo || uname -m)"
wheels=$folder/vulkan-$(echo "$facts" | sha256sum | cut -c -12)
if ! ls "$wheels"/*.whl >/dev/null 2>&1; then
	echo "Compiling llama.cpp for Vulkan: 10 to 15 minutes on two cores, once." >&2
	"$pip" wheel --quiet --disable-pip-version-check --no-cache-dir --no-deps -w "$wheels" "$version" >&2
fi
ls "$wheels"/*.whl
