# What is tried in a root, and the line that says how it went.
# shellcheck shell=bash

# Sets `line` and `all_ok`: what was tried, whether it ended well, and how long it took; what it said is in a log.
try() { # WHAT FOLDER SECONDS COMMAND
    local log=$store/$name-$1.log started=$SECONDS code=0
    inside "$2" "$log" "$3" "$4" || code=$?
    local took=$((SECONDS - started))
    case "$code" in
        0) line+=" $1 ok ($took s)," ;;
        124 | 137) line+=" $1 NOT ENDED after $took s (see $log)," all_ok=false ;;
        *) line+=" $1 FAILED with $code ($took s, see $log)," all_ok=false ;;
    esac
}

try_root() { # NAME
    local name=$1 folder=$store/root-$1 all_ok=true
    line="fresh: $name:"
    if ! make_root "$name" "$folder"; then
        line+=" no such root could be made"
        return 1
    fi
    if $packages; then
        try_packages "$folder"
    else
        git clone --quiet --no-hardlinks "$checkout" "$folder/root/commgauge"
        git -C "$folder/root/commgauge" checkout --quiet --detach "$commit"
        try run "$folder" 3600 'cd /root/commgauge && ./scripts/run'
        try test "$folder" 7200 'cd /root/commgauge && ./scripts/test --quick'
    fi
    line=${line%,}
    $keep || rm -rf "$folder"
    $all_ok
}

# Each package with each MPI of the root: the quick suite through `commgauge run`, and a sweep as people start it themselves.
try_packages() { # FOLDER
    local root=$1 prepare='export DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y --no-install-recommends' mpi
    local quick='mkdir -p /tmp/empty && cd /tmp/empty && commgauge run quick -n 2'
    local enter=
    try_quick() { # PACKAGE
        for mpi in openmpi mpich; do
            local start="mpirun.$mpi"
            [ "$mpi" = mpich ] && start=mpiexec.mpich
            # A launcher that the root has not got is installed where the root has nothing against it.
            if [ ! -e "$root/usr/bin/$start" ]; then continue; fi
            try "$1+$mpi" "$root" 900 "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; $enter $quick --launcher $start &&
                $start -n 2 commgauge-sweep all_reduce -b 8 -e 1K"
        done
    }
    case "$name" in
        *-distractors) try prepare "$root" 900 "$prepare python3-venv xz-utils" ;;
        *) try prepare "$root" 900 "$prepare python3-venv xz-utils openmpi-bin mpich" ;;
    esac
    try untar "$root" 300 'tar --extract --xz --file /packages/commgauge-*.tar.xz --directory /opt && mv /opt/commgauge-* /opt/commgauge'
    enter='PATH=/opt/commgauge/bin:$PATH;'
    try_quick tarball
    try pip "$root" 300 'python3 -m venv /opt/python && /opt/python/bin/pip install --no-index /packages/commgauge-*.whl'
    enter='PATH=/opt/python/bin:$PATH;'
    try_quick wheel
    try apt "$root" 300 "$prepare /packages/commgauge_*.deb"
    enter=
    try_quick deb
}
