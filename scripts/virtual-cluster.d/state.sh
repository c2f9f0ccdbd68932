# Where a cluster's state is, whether it runs, and how to enter it.
# Sourced by ../virtual-cluster.
#
# All of a cluster hangs below one process of this machine, the keeper of `login`: it holds a process namespace in which
# everything else lives, the hosts' own included. When it is killed, the kernel ends and removes all of it.

clusters_folder() {
    echo "${VIRTUAL_CLUSTER_FOLDER:-${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/commgauge-virtual-cluster-$(id -u)}"
}

# Sets `name` and `state`.
choose_cluster() { # NAME
    name=${1:-${VIRTUAL_CLUSTER_NAME:-cg}}
    [[ $name =~ ^[a-z][a-z0-9-]{0,30}$ ]] \
        || usage_error "--name $name: expected small letters, digits and -, such as cg or night-2"
    if inside; then state=$VIRTUAL_CLUSTER_STATE; else state=$(clusters_folder)/$name; fi
}

# Whether this process is on `login` of the very cluster that is meant.
inside() { [ "${VIRTUAL_CLUSTER_INSIDE:-}" = "$name" ]; }

setting() { sed -n "s/^$1=//p" "$state/settings"; }

# The keeper as processes show it; several states with equal beginnings differ in the word after it.
mark_of() { echo "virtual-cluster-keeper=$1/login"; }

# Whether a process is the keeper of this cluster's `login`; process ids are given out again, so it is asked for its words.
is_keeper() { # PID
    local words
    mapfile -d '' -t words <"/proc/$1/cmdline" || return 1
    local word mark
    mark=$(mark_of "$state")
    for word in "${words[@]}"; do [ "$word" = "$mark" ] && return 0; done
    return 1
} 2>/dev/null

keeper() {
    local pid
    read -r pid <"$state/keeper" || return 1
    is_keeper "$pid" && echo "$pid"
} 2>/dev/null

# The processes that are a keeper's, by asking every process; for a state folder that was lost.
all_keepers() {
    local folder
    for folder in /proc/[0-9]*; do
        if is_keeper "${folder#/proc/}"; then echo "${folder#/proc/}"; fi
    done
}

need_cluster() {
    inside && return
    [ -e "$state/made" ] && keeper >/dev/null && return
    usage_error "no cluster $name is up; \`virtual-cluster up --name $name --hosts 2\` makes one$(others)"
}

others() {
    local folder found=()
    for folder in "$(clusters_folder)"/*/; do
        [ -e "$folder/made" ] && found+=("$(basename "$folder")")
    done
    [ "${#found[@]}" -eq 0 ] || echo " (there is ${found[*]})"
}

# Sets `entrance` to the words that lead from here onto `login`; `$parts` holds what may follow them.
find_entrance() {
    entrance=(bash "$parts/at-login" "$state" "$name")
    inside && return
    local pid as_user=()
    pid=$(keeper) || fail "the cluster $name has lost its keeper; \`virtual-cluster down --name $name\` clears it away"
    [ "$(setting rootless)" = no ] || as_user=("--user=/proc/$pid/ns/user" --preserve-credentials)
    # The keeper's parent is outside of the process namespace; should it or this script be killed, the command gets a signal.
    entrance=(nsenter "${as_user[@]}" --target "$pid" --net --uts --mount --ipc "--pid=/proc/$pid/ns/pid_for_children"
        --wd="$PWD" -- setpriv --pdeathsig TERM -- "${entrance[@]}")
}
