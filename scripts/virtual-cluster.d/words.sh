# What the user's words mean, and how complaints are made: usage ends with 2, a machine that cannot with 77, the rest with 6.
# Sourced by ../virtual-cluster.

verbs="up, run, exec, link, slurm, status, down, with"

say() { echo "virtual-cluster: $*" >&2; }
usage_error() { say "$*"; say "\`virtual-cluster --help\` shows every verb and flag"; exit 2; }
skip() { say "skipped: $*"; exit 77; }
fail() { say "$*"; exit 6; }

has() { command -v "$1" >/dev/null 2>&1; }

need_tools() {
    local tool
    for tool in "$@"; do
        has "$tool" && continue
        case "$tool" in
            ip | tc) skip "there is no program $tool here; it is in the package iproute2 (scripts/setup installs it)" ;;
            mpirun) skip "there is no mpirun here; it is in the package openmpi-bin (scripts/setup installs it)" ;;
            mpiexec.mpich) skip "there is no mpiexec.mpich here; it is in the package mpich (scripts/setup --with-mpich)" ;;
            munged | slurmctld | slurmd | srun)
                skip "there is no program $tool here; it is in the packages slurm-wlm and munge (scripts/setup --with-slurm)" ;;
            *) skip "there is no program $tool here; it is in the package util-linux" ;;
        esac
    done
}

# The value of a flag that needs one.
value_of() { # FLAG WORDS...
    [ $# -ge 2 ] && [ "$2" != -- ] || usage_error "$1 needs a value"
    echo "$2"
}

whole_number() { # FLAG VALUE LEAST MOST
    [[ $2 =~ ^[0-9]{1,6}$ ]] && [ "$((10#$2))" -ge "$3" ] && [ "$((10#$2))" -le "$4" ] \
        || usage_error "$1 $2: expected a whole number from $3 to $4"
    echo "$((10#$2))"
}

# A rate as bits per second, decimal as networks count. tc would take more spellings, and silently guess the unit of a bare number.
bits_per_second() { # WHERE RATE
    local number unit scale
    if ! [[ ${2,,} =~ ^([0-9]{1,6})(\.[0-9]{1,3})?(k|m|g)bit(/s)?$ ]]; then
        usage_error "$1: \`$2\` is not a rate; expected a number and a unit, such as 1gbit, 250mbit or 2.5gbit"
    fi
    number=${BASH_REMATCH[1]} unit=${BASH_REMATCH[3]}
    local thousandths=${BASH_REMATCH[2]#.}
    thousandths=$(printf '%-3s' "$thousandths")
    thousandths=${thousandths// /0}
    case "$unit" in k) scale=1 ;; m) scale=1000 ;; g) scale=1000000 ;; esac
    local bits=$(((10#$number * 1000 + 10#$thousandths) * scale))
    # Below, a packet takes longer than TCP waits; above, tc counts in 64 bits but no virtual link gets there.
    [ "$bits" -ge 100000 ] && [ "$bits" -le 100000000000 ] \
        || usage_error "$1: \`$2\` is not between 100kbit and 100gbit"
    echo "$bits"
}

# The number of a host that is named host2, or 2.
host_number() { # WHERE WORD HOSTS
    local number=${2#host}
    if ! [[ $number =~ ^[0-9]{1,3}$ ]] || [ "$((10#$number))" -ge "$3" ]; then
        usage_error "$1: there is no host \`$2\`; the hosts are host0 to host$(($3 - 1))"
    fi
    echo "$((10#$number))"
}

# A pair of hosts such as 3-1, written with the lower number first.
host_pair() { # WHERE PAIR HOSTS
    [[ $2 =~ ^([^-]+)-([^-]+)$ ]] || usage_error "$1: \`$2\` is not a pair of hosts, such as 0-1"
    local one=${BASH_REMATCH[1]} other=${BASH_REMATCH[2]}
    one=$(host_number "$1" "$one" "$3") || exit 2
    other=$(host_number "$1" "$other" "$3") || exit 2
    [ "$one" -ne "$other" ] || usage_error "$1: a link joins two different hosts, not host$one and itself"
    if [ "$one" -lt "$other" ]; then echo "$one-$other"; else echo "$other-$one"; fi
}
