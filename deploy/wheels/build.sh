#!/usr/bin/env bash
# `make wheels`: fills a folder with wheels of llama-duo, of SmolLM2's draft model, and of llama-cpp-python with a
# CPU kernel for each kind of CPU. Needs Python with venv; compiler and cmake come as Python packages.
#
#     [ARCH=aarch64] [CMAKE_ARGS=…] [WITHOUT_AMX=1] [WITH_DEPENDENCIES=1] deploy/wheels/build.sh PYTHON FOLDER
#
# With CMAKE_ARGS (a GPU) the system's compiler is used, so the wheel runs on systems as new as this one, and if the
# compiler gets AMX wrong (see the Makefile), there is no kernel with that.
set -euo pipefail

mkdir -p "$2" build/wheels
folder=$(cd "$2" && pwd)
work=$PWD/build/wheels
tools=$work/tools/bin
arch=${ARCH:-$(uname -m)}
pin=$(grep '^llama_cpp_python==' constraints.txt)
wheel="llama_cpp_python-${pin#*==}-py3-none-*_$arch.whl"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

[ -x "$tools/python" ] || "$1" -m venv "$work/tools"
"$tools/pip" install -c constraints.txt -r deploy/wheels/requirements.txt

# Zig's Clang, for the glibc of 2012 (manylinux2014); its C++ library becomes part of each library. It knows what
# -march means on ARM under other names.
zig() {
	local program=$work/bin/zig-$1-$arch
	cat >"$program" <<-END
		#!/bin/sh
		for argument; do
		    shift
		    case \$argument in -march=armv*) argument=-mcpu=generic+\$(echo "\${argument#-march=arm}" |
		        sed 's/^v8-a/v8a/; s/^\(v[89]\)[.]\([0-9]\)-a/\1_\2a/; s/+fp16/+fullfp16/') ;; esac
		    set -- "\$@" "\$argument"
		done
		exec "$tools/python" -m ziglang $1 ${2:-} "\$@"
	END
	chmod +x "$program"
	echo "$program"
}

# Fails if there is nothing to change: another version of llama.cpp.
edit() {
	sed -i.before "$2" "$1"
	! cmp -s "$1" "$1.before"
}

build_llama() {
	local beside=\$ORIGIN build
	build=$work/$arch${CMAKE_ARGS:+-$(echo "$CMAKE_ARGS" | cksum | cut -d ' ' -f 1)}
	[ "$(uname)" = Linux ] || beside=@loader_path
	local arguments=(-DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DGGML_NATIVE=OFF -DGGML_RPC=ON
		-DLLAVA_BUILD=ON -DMTMD_VIDEO=OFF
		-DGGML_CCACHE=OFF "-DCMAKE_C_FLAGS=-ffile-prefix-map=$work=." "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$work=."
		-DCMAKE_SHARED_LINKER_FLAGS=-s -DCMAKE_MODULE_LINKER_FLAGS=-s
		# The kernels beside the library that looks for them; each file once, not once more for each of its versions.
		-DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DCMAKE_INSTALL_LIBDIR=llama_cpp/lib
		-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON "-DCMAKE_INSTALL_RPATH=$beside")
	local source=$work/llama_cpp_python-${pin#*==}
	rm -rf "$source" "$work/wheel" "$work/repaired"
	"$tools/pip" download --no-deps --no-build-isolation --no-binary :all: --dest "$work" "$pin"
	tar -C "$work" -xzf "$source.tar.gz"
	# What only llama.cpp's own programs use.
	edit "$source/CMakeLists.txt" 's/set(LLAMA_BUILD_COMMON ON/set(LLAMA_BUILD_COMMON OFF/'
	# For f16 AMX has no instructions, and what ggml has in its place makes T(5)/T(1) 1.85 where others have .86.
	edit "$source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/amx.cpp" '/case GGML_TYPE_F16:/,/break;/d'
	# Clang's addressing costs the product of an f16 matrix and a vector 6 %, unless it must advance the pointers.
	local step='i += GGML_F16_DOT_STEP' bytes='const ggml_fp16_t'
	edit "$source/vendor/llama.cpp/ggml/src/ggml-cpu/vec.cpp" "s/_DOT_VEC_LOAD(\([xy]\) + i +/_DOT_VEC_LOAD(\1i +/
		s/for (int i = 0; i < np; $step) {/$bytes *xi = x, *yi = y; &__asm__ volatile(\"\" : \"+r\"(xi), \"+r\"(yi));/
		s/for (int i = 0; i < np; $step/&, x$step, y$step/"
	if [ -z "${CMAKE_ARGS:-}" ] && [ "$(uname)" = Linux ]; then
		mkdir -p "$work/bin"
		arguments+=(-DGGML_OPENMP=OFF "-DCMAKE_SYSTEM_NAME=Linux" "-DCMAKE_SYSTEM_PROCESSOR=$arch"
			"-DCMAKE_C_COMPILER=$(zig cc "-target $arch-linux-gnu.2.17")"
			"-DCMAKE_CXX_COMPILER=$(zig c++ "-target $arch-linux-gnu.2.17")"
			"-DCMAKE_AR=$(zig ar)" "-DCMAKE_RANLIB=$(zig ranlib)")
		export _PYTHON_HOST_PLATFORM=linux-$arch
		WITHOUT_AMX=
	fi
	local unused="include/**;**/cmake/**;**/pkgconfig/**${WITHOUT_AMX:+;**/*sapphirerapids*}"
	echo "Compiling llama.cpp with a kernel for each kind of CPU: 15 to 20 minutes on two cores, once."
	PATH=$tools:$PATH CMAKE_ARGS="${arguments[*]} ${CMAKE_ARGS:-}" "$tools/pip" wheel --no-deps --no-build-isolation \
		--no-cache-dir -C build-dir="$build" -C install.strip=false -C "wheel.exclude=$unused" \
		-w "$work/wheel" "$source"
	if [ -n "${_PYTHON_HOST_PLATFORM:-}" ]; then # says for which glibc it is, after a look at all symbols
		PATH=$tools:$PATH "$tools/auditwheel" repair --wheel-dir "$work/repaired" "$work/wheel"/*.whl
		mv "$work/repaired"/*.whl "$folder"
	else
		mv "$work/wheel"/*.whl "$folder"
	fi
}

# With completions and man pages.
export HATCH_BUILD_HOOK_ENABLE_CUSTOM=true
for project in . models/smollm2/wheel; do
	"$tools/python" -m build --wheel --no-isolation --outdir "$folder" "$project" >/dev/null
done
compgen -G "$folder/$wheel" >/dev/null || build_llama
if [ -n "${WITH_DEPENDENCIES:-}" ]; then
	"$tools/pip" download --only-binary :all: --find-links "$folder" --dest "$folder" -c constraints.txt \
		'llama-duo[hub,discover]'
fi
