#!/usr/bin/env bash
# `make images`: builds llama.cpp's library for images, libmtmd, beside the libraries of an installed
# llama-cpp-python, from the source of the same version. 2 to 5 minutes on two cores, once.
#
#     deploy/images/build.sh PYTHON [FOLDER]
#
# FOLDER: unpacked source of llama-cpp-python; without it, it is downloaded.
set -euo pipefail

python=$1
cxx=${CXX:-c++} cc=${CC:-cc}
library=$("$python" -c "from shared.llama.native import FOLDER; print(FOLDER)")
pin=$(grep '^llama_cpp_python==' constraints.txt)
work=$PWD/build/images
[ "$(uname)" = Darwin ] && suffix=dylib beside=@loader_path || suffix=so beside=\$ORIGIN
target=$library/libmtmd.$suffix

mkdir -p "$work/objects"
source=${2:-$work/llama_cpp_python-${pin#*==}}
if [ ! -d "$source" ]; then
	# Its metadata are not needed, and to make them pip would install what builds it.
	"$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation \
		--dest "$work" "$pin" >/dev/null 2>&1 || "$python" -m pip download --quiet --disable-pip-version-check \
		--no-deps --no-binary :all: --dest "$work" "$pin"
	tar -C "$work" -xzf "$work/llama_cpp_python-${pin#*==}.tar.gz"
fi
llama=$source/vendor/llama.cpp
mtmd=$llama/tools/mtmd
flags=(-O2 -fPIC -w -DNDEBUG -DLLAMA_BUILD -DLLAMA_SHARED -DGGML_SHARED "-ffile-prefix-map=$source=.")
includes=("-I$mtmd" "-I$llama/include" "-I$llama/ggml/include" "-I$llama/vendor" "-I$llama/vendor/hash")

compile() {
	local object=$work/objects/$(basename "$1").o
	[ "$object" -nt "$1" ] && return
	case $1 in
	*/sha1.c) "$cxx" -std=c++17 -x c++ "${flags[@]}" "${includes[@]}" -c "$1" -o "$object" ;; # in a namespace
	*.c) "$cc" "${flags[@]}" "${includes[@]}" -c "$1" -o "$object" ;;
	*) "$cxx" -std=c++17 "${flags[@]}" "${includes[@]}" -c "$1" -o "$object" ;;
	esac
}

files=("$llama"/vendor/hash/{hash.cpp,sha1/sha1.c,sha256/sha256.c,xxhash/xxhash.c} "$mtmd"/models/*.cpp)
for file in "$mtmd"/*.cpp; do
	case $(basename "$file") in
	mtmd-cli.cpp | deprecation-warning.cpp) ;; # programs
	*) files+=("$file") ;;
	esac
done
echo "Compiling libmtmd, llama.cpp's library for images: 2 to 5 minutes on two cores, once."
n_jobs=$(getconf _NPROCESSORS_ONLN)
for file in "${files[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$n_jobs" ]; do
		wait -n
	done
	compile "$file" &
done
while [ -n "$(jobs -p)" ]; do
	wait -n || { [ $? = 127 ] && break || exit 1; }
done

# By their file names: a wheel may have a library without the links that compilers look for.
needed=()
for name in llama ggml ggml-base; do
	needed+=("$(ls "$library/lib$name.$suffix"* | head -1)")
done
"$cxx" -shared -o "$target.part" "$work"/objects/*.o "${needed[@]}" "-Wl,-rpath,$beside"
mv "$target.part" "$target"
