# What is missing: packages of Debian and of Fedora, each with its reason.
# shellcheck shell=bash

need() { missing+=("$1"); fedora+=("$2"); reasons+=("$3"); }

# Whether a package is missing; sets `index` to its place.
is_missing() { # PACKAGE
    for index in "${!missing[@]}"; do
        if [ "${missing[$index]}" = "$1" ]; then return 0; fi
    done
    return 1
}

# Only where hosts of network namespaces can be made: for root, or where every account may make namespaces.
makes_namespaces() {
    local unshare as_user=()
    unshare=$(program unshare) || return 1
    [ "$(user_number)" -eq 0 ] || as_user=(--user --map-root-user)
    "$unshare" ${as_user[@]+"${as_user[@]}"} --net --uts --mount true 2>/dev/null
}

find_needs() {
    missing=() reasons=() fedora=()
    has cc || need gcc gcc "compiles the few lines of C between Rust and MPI"
    has c++ || need g++ gcc-c++ "compiles the kernels for the CPU, where the tests run them"
    [ -e "$root/usr/include/stdio.h" ] || need libc6-dev glibc-devel "headers of the C library"
    find_mpi
    if ! has_libclang; then
        need libclang-dev clang-devel "libclang, with which MPI's header is read while building"
    elif ! has_clang_headers; then
        need libclang-dev clang-devel "the headers of libclang, with which MPI's header is read while building"
    fi
    if makes_namespaces && ! { has ip && has tc; }; then
        need iproute2 iproute "makes the virtual hosts of scripts/virtual-cluster"
    fi
    if $with_chromium; then
        has chromium || has chromium-browser || has google-chrome ||
            need chromium chromium "opens the report page in its test, as readers will"
    fi
    if $with_python; then
        has python3 || need python3 python3 "runs scripts/gpu-check and the checks of kernels and NCCL"
        "$(program python3)" -m pip --version >/dev/null 2>&1 ||
            need python3-pip python3-pip "fetches NVIDIA's packages for those checks"
    fi
    if $with_prometheus; then
        { has promtool && has prometheus; } || need prometheus golang-github-prometheus "reads the metrics, the alerts and the dashboard's queries"
        has xmllint || need libxml2-utils libxml2 "holds test reports to the schema of Jenkins"
    fi
    if $with_mpich; then
        has mpicc.mpich || need libmpich-dev mpich-devel "the second MPI that the tests run with"
        has mpiexec.mpich || has mpiexec.hydra || need mpich mpich "starts ranks of MPICH"
    fi
    # Its daemons start jobs for others, which needs root, and run on virtual hosts alone.
    if $with_slurm && [ "$(user_number)" -eq 0 ] && makes_namespaces; then
        has slurmctld || need slurm-wlm slurm-slurmctld "Slurm, for its jobs on virtual hosts"
        has munged || need munge munge "how Slurm's daemons trust each other"
    fi
}
