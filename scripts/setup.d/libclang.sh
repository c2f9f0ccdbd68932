# Whether bindgen, which reads MPI's header while commgauge is built, finds libclang and the headers that belong to it.
# shellcheck shell=bash

# The names that bindgen's loader (crate clang-sys) takes. libclang-cpp, which comes with every clang, is another library.
is_libclang() { # PATH
    [ -f "$1" ] || return 1
    case "${1##*/}" in
        *-cpp.*) return 1 ;;
        libclang.so | libclang-*.so | libclang.so.* | libclang-*.so.*) return 0 ;;
        *) return 1 ;;
    esac
}

any_libclang() { # PATH...
    local file
    for file in "$@"; do
        if is_libclang "$file"; then return 0; fi
    done
    return 1
}

# In the order of clang-sys: LIBCLANG_PATH (a folder, or the library itself) and nothing else where it is set; llvm-config's folders,
# LD_LIBRARY_PATH, LIBRARY_PATH, the usual folders.
has_libclang() {
    if [ -n "${LIBCLANG_PATH:-}" ]; then
        any_libclang "$root$LIBCLANG_PATH" "$root$LIBCLANG_PATH"/libclang*.so* ||
            stop 2 "LIBCLANG_PATH is $LIBCLANG_PATH, where there is no libclang.so, libclang-N.so or libclang.so.N; name the folder that has one, or unset it"
        return 0
    fi
    local prefix folder
    prefix=$("$(program "${LLVM_CONFIG_PATH:-llvm-config}")" --prefix 2>/dev/null) || prefix=
    if [ -n "$prefix" ] && any_libclang "$root$prefix"/{bin,lib,lib64}/libclang*.so*; then return 0; fi
    local folders=()
    IFS=: read -r -a folders <<<"${LD_LIBRARY_PATH:-}:${LIBRARY_PATH:-}"
    for folder in ${folders[@]+"${folders[@]}"}; do
        if [ -n "$folder" ] && any_libclang "$root$folder"/libclang*.so*; then return 0; fi
    done
    any_libclang "$root"/usr/local/llvm*/lib*/libclang*.so* \
        "$root"/usr/local/lib*/{,*/,*/*/}libclang*.so* "$root"/usr/lib*/{,*/,*/*/}libclang*.so*
}

# stddef.h and others are the compiler's own; a libclang alone has none, and then stops at the first line of mpi.h.
has_clang_headers() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    local header
    for header in "$root"/usr/lib*/{,llvm*/lib*/,*/}clang/*/include/stddef.h "$root"/usr/local/{,llvm*/}lib*/clang/*/include/stddef.h; do
        if [ -f "$header" ]; then return 0; fi
    done
    local prefix
    prefix=$("$(program "${LLVM_CONFIG_PATH:-llvm-config}")" --prefix 2>/dev/null) || prefix=
    for header in ${prefix:+"$root$prefix"/lib*/clang/*/include/stddef.h}; do
        if [ -f "$header" ]; then return 0; fi
    done
    return 1
}
