# The bare roots: which there are, and how one is made. What is made once is kept in the store; each trial works on a copy.
# shellcheck shell=bash

root_names=(bookworm-distractors trixie bullseye bookworm)

is_root_name() { # NAME
    local name
    for name in "${root_names[@]}"; do
        if [ "$name" = "$1" ]; then return 0; fi
    done
    return 1
}

# The first archive of this machine's apt that has the suite.
find_mirror() { # SUITE
    local url candidates probe=$store/probe
    candidates=${mirror:-$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | sort -u)}
    for url in $candidates; do
        if /usr/lib/apt/apt-helper download-file "${url%/}/dists/$1/Release" "$probe" >/dev/null 2>&1; then
            rm -f "$probe"
            echo "${url%/}"
            return 0
        fi
        rm -f "$probe"
    done
    return 1
}

# A root as debootstrap makes it, the smallest. It takes its name last, so that one that was interrupted is not taken for whole.
make_base() { # SUITE
    local base=$store/base-$1 url
    if [ -d "$base" ]; then return 0; fi
    if ! url=$(find_mirror "$1"); then
        echo "test-fresh: no archive of this machine's apt has $1; name one that does with --mirror" >&2
        return 1
    fi
    echo "test-fresh: debootstrap makes $1"
    rm -rf "$base.part"
    if ! debootstrap --variant=minbase "$1" "$base.part" "$url" >"$store/base-$1.log" 2>&1; then
        echo "test-fresh: debootstrap could not make $1; see $store/base-$1.log" >&2
        return 1
    fi
    rm -f "$base.part"/var/cache/apt/archives/*.deb
    mv "$base.part" "$base"
}

copy_root() { # FROM TO
    rm -rf "$2"
    cp -a --reflink=auto "$1" "$2"
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    # As every installed machine has it, and debootstrap leaves out.
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$2/etc/hosts"
}

# What leads astray: a clang that was unpacked without its libclang, libclang-cpp, MPICH as the only MPI. python3 and git are not there
# unless something brings them.
make_distracted() {
    local base=$store/base-bookworm-distractors
    if [ -d "$base" ]; then return 0; fi
    make_base bookworm || return 1
    copy_root "$store/base-bookworm" "$base.part"
    local log=$store/base-bookworm-distractors.log
    if ! inside "$base.part" "$log" 1800 'set -e
        export DEBIAN_FRONTEND=noninteractive
        apt-get update
        apt-get install -y --no-install-recommends libmpich-dev mpich libclang-cpp14 libllvm14
        cd /tmp && apt-get download clang-14 && dpkg-deb -x clang-14_*.deb / && rm clang-14_*.deb
        ln -s clang-14 /usr/bin/clang
        apt-get clean
        clang --version
        ! command -v git && ! command -v python3
        ! ls /usr/lib/*/libclang-14.so* /usr/lib/*/libclang.so*'; then
        echo "test-fresh: the distractors could not be installed; see $log" >&2
        return 1
    fi
    mv "$base.part" "$base"
}

make_root() { # NAME FOLDER
    case "$1" in
        bookworm-distractors) make_distracted ;;
        *) make_base "$1" ;;
    esac || return 1
    copy_root "$store/base-$1" "$2"
}
