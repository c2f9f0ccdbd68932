# What is done with a cluster that is up: ranks, commands, other links.
# Sourced by ../virtual-cluster.

verb_run() {
    local asked= ranks= each= mpi=open-mpi on= words=() flag
    while [ $# -gt 0 ]; do
        flag=$1
        case "$flag" in
            --name | -n | --ranks-per-host | --on | --mpi | --launcher-arg) value_of "$@" >/dev/null ;;
            --) shift; break ;;
            *) usage_error "unknown word $flag before --; run knows -n, --ranks-per-host, --on, --mpi, --launcher-arg, --name" ;;
        esac
        case "$flag" in
            --name) asked=$2 ;;
            -n) ranks=$(whole_number "$flag" "$2" 1 100000) || exit 2 ;;
            --ranks-per-host) each=$(whole_number "$flag" "$2" 1 100000) || exit 2 ;;
            --on) on=$2 ;;
            --mpi) mpi=$2 ;;
            --launcher-arg) words+=("$2") ;;
        esac
        shift 2
    done
    [ -n "$ranks" ] || usage_error "-n is missing: how many ranks"
    [ $# -gt 0 ] || usage_error "the program is missing; it follows --"
    case "$mpi" in open-mpi | mpich) ;; *) usage_error "--mpi $mpi: known are open-mpi and mpich" ;; esac
    choose_cluster "$asked"
    need_cluster
    find_entrance
    local hosts program=$1 chosen=()
    shift
    choose_hosts "$on"
    hosts=${#chosen[@]}
    [ -n "$each" ] || each=$(((ranks + hosts - 1) / hosts))
    [ "$((each * hosts))" -ge "$ranks" ] \
        || usage_error "$ranks ranks do not fit on $hosts hosts with $each each; --ranks-per-host $(((ranks + hosts - 1) / hosts)) would do"
    [[ $program != */* ]] || program=$(realpath -s "$program")
    check_program "$program"
    launcher_words "$mpi" "$ranks" "$each"
    in_front "${entrance[@]}" "${launcher[@]}" "${words[@]}" "$program" "$@"
}

# Sets `chosen` to the numbers of the hosts that are named, or of all.
choose_hosts() { # LIST
    local hosts word
    hosts=$(setting hosts)
    if [ -z "$1" ]; then mapfile -t chosen < <(seq 0 "$((hosts - 1))"); return; fi
    for word in ${1//,/ }; do
        word=$(host_number --on "$word" "$hosts") || exit 2
        [[ " ${chosen[*]} " != *" $word "* ]] || usage_error "--on $1: host$word is named twice"
        chosen+=("$word")
    done
}

# A program that only login sees would end in an unhelpful message of the launcher.
check_program() { # PROGRAM
    "${entrance[@]}" "$parts/into" host0 / sh -c 'cd "$0"' "$PWD" 2>/dev/null </dev/null || usage_error \
        "the hosts do not see the folder $PWD, as each has a /tmp of its own; \`up --share $PWD\` would share it"
    "${entrance[@]}" "$parts/into" host0 "$PWD" sh -c 'command -v "$0"' "$1" >/dev/null </dev/null || usage_error \
        "there is no program $1 on the hosts; if it is in /tmp, \`up --share FOLDER\` shares its folder"
}

# Sets `launcher`. Blocks of ranks: the hosts in `chosen` are filled one after the other.
launcher_words() { # MPI RANKS RANKS_PER_HOST
    local left=$2 host list=
    for ((host = 0; left > 0; host++)); do
        list+="${list:+,}host${chosen[host]}:$((left < $3 ? left : $3))"
        left=$((left - $3))
    done
    if [ "$1" = mpich ]; then
        need_tools mpiexec.mpich
        launcher=(mpiexec.mpich -n "$2" -hosts "$list")
        return
    fi
    need_tools mpirun
    # All hosts share the processors of this machine with the kernel, which plays the network. Open MPI cannot know that, and
    # ranks that spin while they wait would keep the packets from moving.
    launcher=(mpirun -np "$2" --host "$list" --map-by slot --bind-to none --mca mpi_yield_when_idle 1)
}

verb_exec() {
    local asked= host=
    while [ $# -gt 0 ]; do
        case "$1" in
            --name) asked=$(value_of "$@") || exit 2; shift 2 ;;
            --) shift; break ;;
            -*) usage_error "unknown flag $1; exec knows --name" ;;
            *) [ -z "$host" ] || usage_error "exec takes one host, and the command behind --"; host=$1; shift ;;
        esac
    done
    [ -n "$host" ] || usage_error "the host is missing: host0, host1, ... or login"
    [ $# -gt 0 ] || usage_error "the command is missing; it follows --"
    choose_cluster "$asked"
    need_cluster
    find_entrance
    [ "$host" != login ] || exec "${entrance[@]}" "$@"
    host=$(host_number exec "$host" "$(setting hosts)") || exit 2
    exec "${entrance[@]}" "$parts/into" "host$host" "$PWD" "$@"
}

verb_link() {
    local asked= words=() hosts which what
    while [ $# -gt 0 ]; do
        case "$1" in
            --name) asked=$(value_of "$@") || exit 2; shift 2 ;;
            -*) usage_error "unknown flag $1; link knows --name" ;;
            *) words+=("$1"); shift ;;
        esac
    done
    [ "${#words[@]}" -eq 2 ] || usage_error "link takes a host or a pair, and a rate, down, up or (a pair) lossy: \`link 1-3 250mbit\`"
    choose_cluster "$asked"
    need_cluster
    hosts=$(setting hosts)
    which=${words[0]} what=${words[1]}
    if [[ $which == *-* ]]; then which=$(host_pair link "$which" "$hosts"); else which=$(host_number link "$which" "$hosts"); fi || exit 2
    [[ $what != lossy || $which == *-* ]] || usage_error "a pair can be lossy, as \`link 1-3 lossy\`; a host cannot"
    case "$what" in up | down | lossy) ;; *) what=$(bits_per_second link "$what") || exit 2 ;; esac
    find_entrance
    "${entrance[@]}" bash "$parts/relink" "$state" "$which" "$what" || fail "the link could not be changed"
}

verb_status() {
    local asked= hosts host link rate
    while [ $# -gt 0 ]; do
        case "$1" in
            --name) asked=$(value_of "$@") || exit 2; shift 2 ;;
            *) usage_error "unknown word $1; status knows --name" ;;
        esac
    done
    choose_cluster "$asked"
    need_cluster
    hosts=$(setting hosts)
    printf '%-8s %-12s %s\n' "$name" address "rate, out and in"
    printf '%-8s %-12s %s\n' login "$(address_in_state login)" "not shaped"
    for ((host = 0; host < hosts; host++)); do
        rate=$(rate_in_words "$(cat "$state/rates/$host")")
        [ ! -e "$state/unplugged-$host" ] || rate="down"
        printf '%-8s %-12s %s\n' "host$host" "$(address_in_state "host$host")" "$rate"
    done
    for link in "$state"/rates/*-*; do
        [ -e "$link" ] || continue
        printf '%-8s %-12s %s\n' link "$(basename "$link")" "$(rate_in_words "$(cat "$link")")"
    done
}

address_in_state() { sed -n "s/^\([^ ]*\) $1\$/\1/p" "$state/hosts"; }

rate_in_words() { # BITS_PER_SECOND|down
    case "$1" in
        down) echo down ;;
        *000000000) echo "${1%000000000}gbit" ;;
        *000000) echo "${1%000000}mbit" ;;
        *) echo "${1%000}kbit" ;;
    esac
}

verb_with() {
    read_up_flags "$@"
    [ "${#command[@]}" -gt 0 ] || usage_error "the command is missing; it follows --"
    # Should we be killed, the kernel kills the keeper too, and with it the cluster.
    make_cluster setpriv --pdeathsig KILL
    trap 'clear_cluster' EXIT
    find_entrance
    in_front "${entrance[@]}" "${command[@]}"
}

# Runs a command to its end as if it were this script: its exit code is ours, and what asks us to end asks the command, once.
in_front() { # COMMAND...
    # A session of its own, or Ctrl-C at a terminal would reach it twice.
    setpriv --pdeathsig KILL env --default-signal=INT,QUIT setsid "$@" <&0 &
    child=$! signalled=
    trap 'pass_on INT 130' INT
    trap 'pass_on TERM 143' TERM
    trap 'pass_on HUP 129' HUP
    local code=0
    wait "$child" || code=$?
    if [ -n "$signalled" ]; then code=$(await_signalled); fi
    exit "$code"
}

pass_on() { # SIGNAL CODE
    local target=$child
    # The signal is for the program that the entrance starts; the entrance itself would only die.
    inside || target=$(child_of "$child") || return 0
    signalled=$2
    kill "-$1" "$target" 2>/dev/null || true
}

# A command that was signalled to end gets 30 s for it.
await_signalled() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        kill -0 "$child" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$child" 2>/dev/null || true
    echo "$signalled"
}

child_of() { # PID
    local stat words
    for stat in /proc/[0-9]*/stat; do
        read -r words <"$stat" || continue
        # The name in brackets may hold anything; the state and the parent follow it.
        words=${words##*) }
        words=${words#? }
        if [ "${words%% *}" = "$1" ]; then stat=${stat%/stat}; echo "${stat#/proc/}"; return; fi
    done
    return 1
} 2>/dev/null
