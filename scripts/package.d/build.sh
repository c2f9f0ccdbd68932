# Builds commgauge and, for each MPI, the programs of the ranks, against an older glibc than this machine's.
# shellcheck shell=bash

tool_versions=(cargo-zigbuild==0.24.0 ziglang==0.17.1)
target=x86_64-unknown-linux-gnu

get_tools() {
    local tools=$output/tools
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        command -v python3 >/dev/null || stop 6 "there is no python3, which fetches zig; scripts/setup --with-python gets it"
        rm -rf "$tools"
        python3 -m venv "$tools" >/dev/null || stop 6 "python3 can make no environment; install python3-venv"
        "$tools/bin/pip" install --quiet "${tool_versions[@]}" || stop 6 "pip cannot fetch ${tool_versions[*]}"
    fi
    PATH="$tools/bin:$PATH"
}

build_all() {
    build open-mpi mpicc.openmpi mpi libmpi.so.40
    # Both builds share what knows no MPI.
    if [ ! -d "$work/mpich" ]; then
        cp -a "$work/open-mpi" "$work/mpich"
        cargo clean --quiet --locked --release --target "$target" --target-dir "$work/mpich" -p mpi-sys -p mpi -p commgauge-run -p commgauge-app -p commgauge
    fi
    build mpich mpicc.mpich mpich libcommgauge-mpich.so
}

build() { # FOLDER COMPILER LIBRARY STUB
    local stub=$work/stub-$1
    command -v "$2" >/dev/null || stop 6 "there is no $2; scripts/setup --with-mpich gets it"
    mkdir -p "$stub"
    make_stub "$2" "$3" "$4" "$stub"
    make_compiler "$2" "$3" "$stub"
    echo "package: building for $1"
    # The headers that MPI's is read with are this machine's own; only what they declare matters, and that is the same everywhere.
    local headers
    headers="-isystem $(gcc -print-file-name=include) -isystem /usr/include/$(gcc -print-multiarch) -isystem /usr/include"
    BINDGEN_EXTRA_CLANG_ARGS=$headers BINDGEN_EXTRA_CLANG_ARGS_x86_64_unknown_linux_gnu=$headers MPICC=$stub/mpicc CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=none \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C link-arg=-Wl,-rpath,$ORIGIN' \
        cargo zigbuild --quiet --locked --release --features packaged --bin commgauge --bin commgauge-ranks --target "$target.$glibc" --target-dir "$work/$1" ||
        stop 6 "the build for $1 failed"
}

# What to link against instead of the MPI of this machine, which needs this machine's glibc: a library with the names of all of its
# functions and the name by which ranks look for it. That of MPICH is shipped: by itself it only says that there is no MPI, but as a
# filter it hands everything on to libmpi.so.12, or to libmpich.so.12, whichever the machine has.
make_stub() { # COMPILER LIBRARY NAME FOLDER
    local real flags=()
    real=$(library_of "$1" "$2")
    {
        echo 'long write(int, const void *, unsigned long);'
        echo 'void _exit(int) __attribute__((noreturn));'
        echo 'void commgauge_no_mpi(void) {'
        echo '    static const char text[] = "commgauge: neither libmpi.so.12 nor libmpich.so.12 is found; load the module of the MPI, or set LD_LIBRARY_PATH\n";'
        echo '    write(2, text, sizeof text - 1); _exit(6);'
        echo '}'
        # So that the programs export theirs, which MPICH is to find before UCX's (src/run/mpi_call/yielding.c).
        echo 'extern unsigned ucp_worker_progress(void *) __attribute__((weak));'
        echo 'void *commgauge_refers_to = (void *)ucp_worker_progress;'
        readelf --dyn-syms --wide "$real" | awk '$7 != "UND" && $8 ~ /^(P?MPIX?_|ompi_)/ {
            sub(/@.*/, "", $8)
            if ($4 == "FUNC") print "void " $8 "(void) __attribute__((alias(\"commgauge_no_mpi\")));"
            if ($4 == "OBJECT") print "char " $8 "[" $3 "];"
        }' | sort -u
    } >"$4/stub.c"
    if [ "$2" = mpich ]; then flags=(-Wl,--auxiliary,libmpi.so.12 -Wl,--auxiliary,libmpich.so.12); fi
    gcc -w -shared -fPIC -nostdlib -O1 -Wl,-soname,"$3" ${flags[@]+"${flags[@]}"} "$4/stub.c" -o "$4/$3"
    ln -sf "$3" "$4/lib$2.so"
}

library_of() { # COMPILER LIBRARY
    local word
    for word in $("$1" -show) -L/usr/lib/x86_64-linux-gnu; do
        case "$word" in
            -L*) if [ -e "${word#-L}/lib$2.so" ]; then echo "${word#-L}/lib$2.so"; return; fi ;;
        esac
    done
    stop 6 "$1 tells of no folder with lib$2.so"
}

# The compiler of the MPI, except that it names the stub as what to link against.
make_compiler() { # COMPILER LIBRARY FOLDER
    local word includes=
    for word in $("$1" -show); do
        case "$word" in -I*) includes+=" $word" ;; esac
    done
    printf '#!/bin/sh\nif [ "$*" = -show ]; then echo "gcc%s -L%s -l%s"; else exec %s "$@"; fi\n' \
        "$includes" "$3" "$2" "$1" >"$3/mpicc"
    chmod +x "$3/mpicc"
}
