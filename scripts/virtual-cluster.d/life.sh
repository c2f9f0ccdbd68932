# How a cluster comes up and goes down.
# Sourced by ../virtual-cluster.

# Reads the flags of `up`; what follows `--` is left in `command`.
read_up_flags() {
    local flag asked=
    hosts= rate=1gbit host_rates=() links=() shares=() machines=no command=()
    while [ $# -gt 0 ]; do
        flag=$1
        case "$flag" in
            --name | --hosts | --rate | --host-rate | --link | --share) value_of "$@" >/dev/null ;;
            --as-machines) machines=yes; shift; continue ;;
            --) shift; command=("$@"); break ;;
            *) usage_error "unknown flag $flag; known are --name, --hosts, --rate, --host-rate, --link, --share, --as-machines" ;;
        esac
        case "$flag" in
            --name) asked=$2 ;;
            --hosts) hosts=$(whole_number "$flag" "$2" 1 64) || exit 2 ;;
            --rate) rate=$2 ;;
            --host-rate) host_rates+=("$2") ;;
            --link) links+=("$2") ;;
            --share) shares+=("$2") ;;
        esac
        shift 2
    done
    [ -n "$hosts" ] || usage_error "--hosts is missing: how many hosts, 1 to 64"
    choose_cluster "$asked"
    rate=$(bits_per_second --rate "$rate") || exit 2
    check_rates
    check_shares
}

# `host_rates` and `links` become pairs of words that need no further check.
check_rates() {
    local word host pair bits index
    for index in "${!host_rates[@]}"; do
        word=${host_rates[$index]}
        [[ $word == *=* ]] || usage_error "--host-rate $word: expected a host and a rate, such as 2=500mbit"
        host=$(host_number --host-rate "${word%%=*}" "$hosts") || exit 2
        bits=$(bits_per_second --host-rate "${word#*=}") || exit 2
        host_rates[index]="$host $bits"
    done
    for index in "${!links[@]}"; do
        word=${links[$index]}
        [[ $word == *=* ]] || usage_error "--link $word: expected two hosts and a rate, such as 1-3=250mbit"
        pair=$(host_pair --link "${word%%=*}" "$hosts") || exit 2
        bits=down
        [ "${word#*=}" = down ] || bits=$(bits_per_second --link "${word#*=}") || exit 2
        links[index]="$pair $bits"
    done
}

# `shares` becomes the folders below /tmp that the hosts must see.
check_shares() {
    local folder found=()
    for folder in "${shares[@]}"; do
        [ -d "$folder" ] || usage_error "--share $folder: there is no such folder"
        folder=$(readlink -f "$folder")
        [ "$folder" != /tmp ] || usage_error "--share /tmp: every host has a /tmp of its own; share a folder below it"
        found+=("$folder")
    done
    for folder in "$PWD" "$parts/../.." "${CARGO_TARGET_DIR:-$PWD}"; do
        [ ! -d "$folder" ] || found+=("$(readlink -f "$folder")")
    done
    shares=()
    while read -r folder; do
        [[ $folder != /tmp/* ]] || shares+=("$folder")
    done < <(printf '%s\n' "${found[@]}" | sort -u)
}

verb_up() {
    read_up_flags "$@"
    [ "${#command[@]}" -eq 0 ] || usage_error "up takes no command; \`with\` and \`run\` do"
    make_cluster
    say "$name is up: $hosts hosts; \`virtual-cluster run --name $name -n $((2 * hosts)) -- PROGRAM\` starts ranks on them"
}

# Makes the cluster, or leaves nothing. The words given hold its keeper: with `setpriv --pdeathsig KILL`, it ends with us.
make_cluster() {
    need_tools ip tc unshare nsenter setsid setpriv
    claim_state
    # From here on there is something to remove.
    trap 'clear_cluster' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    write_state
    start_keeper "$@"
    local answer=0
    find_entrance
    # Entering a namespace leaves a chroot: paths differ there.
    "${entrance[@]}" test -e "$parts/build" </dev/null 2>/dev/null ||
        skip "$parts is not to be found from inside a namespace, as in a chroot"
    "${entrance[@]}" bash "$parts/build" "$state" </dev/null || answer=$?
    case "$answer" in
        0) : >"$state/made" ;;
        77) exit 77 ;;
        *) fail "the hosts of $name could not be made; what was made is removed again" ;;
    esac
    trap - EXIT INT TERM HUP
}

claim_state() {
    local maker
    mkdir -p "$(clusters_folder)" || fail "the folder $(clusters_folder) for the state cannot be made"
    if ! mkdir "$state" 2>/dev/null; then
        if [ -e "$state/made" ] && keeper >/dev/null; then
            usage_error "$name is up already; \`virtual-cluster down --name $name\` removes it, another --name starts a second one"
        fi
        maker=$(cat "$state/maker" 2>/dev/null) || true
        if [ -n "$maker" ] && kill -0 "$maker" 2>/dev/null; then
            usage_error "process $maker is making $name at this moment"
        fi
        # A maker that was killed: what it left is ours to remove.
        clear_cluster
        mkdir "$state" || fail "the folder $state for the state cannot be made"
    fi
    echo "$$" >"$state/maker"
}

write_state() {
    local word host
    mkdir "$state"/{pids,ready,rates,before,tmp,temporary,slurm}
    [ "$machines" = no ] || mkdir "$state/boot-ids"
    local rootless=no
    [ "$(id -u)" -eq 0 ] || rootless=yes
    printf '%s\n' "hosts=$hosts" "rootless=$rootless" >"$state/settings"
    if [[ $state == /tmp/* ]]; then shares+=("$state/temporary" "$state/slurm"); fi
    : >"$state/shares"
    [ "${#shares[@]}" -eq 0 ] || printf '%s\n' "${shares[@]}" >"$state/shares"
    . "$parts/fabric.sh"
    echo "127.0.0.1 localhost" >"$state/hosts"
    echo "$login_address login" >>"$state/hosts"
    for ((host = 0; host < hosts; host++)); do
        echo "$(address_of "$host") host$host" >>"$state/hosts"
        echo "$rate" >"$state/rates/$host"
    done
    for word in "${host_rates[@]}" "${links[@]}"; do echo "${word#* }" >"$state/rates/${word% *}"; done
}

start_keeper() { # WORDS TO HOLD IT...
    local as_user=() tries pid
    [ "$(setting rootless)" = no ] || as_user=(--user --map-root-user)
    "$@" setsid unshare "${as_user[@]}" --fork --pid --kill-child --mount-proc --net --uts --mount --ipc -- \
        bash "$parts/keeper" "$(mark_of "$state")" "$state" login </dev/null >"$state/log" 2>&1 &
    pid=$!
    # Or this shell would report its end.
    disown "$pid"
    echo "$pid" >"$state/keeper"
    for ((tries = 0; tries < 1000; tries++)); do
        [ -s "$state/ready/login" ] && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.01
    done
    skip "this account may not make namespaces; it needs root, or user namespaces for all" \
        "($(tail -n 1 "$state/log"))"
}

verb_down() {
    local asked=
    while [ $# -gt 0 ]; do
        case "$1" in
            --name) asked=$(value_of "$@") || exit 2; shift 2 ;;
            *) usage_error "unknown word $1; down knows --name" ;;
        esac
    done
    choose_cluster "$asked"
    ! inside || usage_error "down is called from outside; this is \`login\` of $name"
    local there=false
    [ ! -d "$state" ] || there=true
    clear_cluster
    if $there; then say "$name is down"; else say "there is no cluster $name; nothing to remove"; fi
}

# Ends everything that runs in the cluster, and with it the namespaces, the mounts and the cables, then its state. The kernel
# lets a keeper go only after all that lived below it.
clear_cluster() {
    local pids pid tries
    for ((tries = 0; tries < 1000; tries++)); do
        pids=$(all_keepers)
        [ -n "$pids" ] || break
        for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
        for pid in $pids; do await_end "$pid"; done
    done
    [ -z "$(all_keepers)" ] || fail "these processes of $name cannot be ended: $(all_keepers | tr '\n' ' ')"
    if [ -e "$state/maker" ] || [ -e "$state/settings" ]; then rm -rf -- "$state"; fi
    # The processor group of Slurm's jobs, should no other cluster use it.
    rmdir "$(clusters_folder)" /sys/fs/cgroup/{cpu/,}virtual-clusters 2>/dev/null || true
}

await_end() { # PID
    local tries stat
    for ((tries = 0; tries < 1000; tries++)); do
        read -r stat <"/proc/$1/stat" || return 0
        [[ $stat != *") Z "* ]] || return 0
        sleep 0.01
    done
} 2>/dev/null
