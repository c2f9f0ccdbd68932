# Slurm on a cluster that is up: munged and slurmctld on `login`, a slurmd on every host.
# Sourced by ../virtual-cluster.

verb_slurm() {
    local asked= what= cpus= gpus= flag
    while [ $# -gt 0 ]; do
        flag=$1
        case "$flag" in
            --name | --cpus | --gpus) value_of "$@" >/dev/null ;;
            -*) usage_error "unknown flag $flag; slurm knows --name, --cpus and --gpus" ;;
            *)
                [ -z "$what" ] || usage_error "slurm takes one word, up or down"
                what=$1
                shift
                continue
                ;;
        esac
        case "$flag" in
            --name) asked=$2 ;;
            --cpus) cpus=$(whole_number "$flag" "$2" 1 1024) || exit 2 ;;
            --gpus) gpus=$(whole_number "$flag" "$2" 0 64) || exit 2 ;;
        esac
        shift 2
    done
    case "$what" in up | down) ;; *) usage_error "slurm $what: known are up and down" ;; esac
    choose_cluster "$asked"
    need_cluster
    find_entrance
    "slurm_$what" "${cpus:-4}" "${gpus:-0}"
}

slurm_up() { # CPUS GPUS
    need_tools munged slurmctld slurmd srun
    [ "$(setting rootless)" = no ] || skip "Slurm's daemons start the jobs of others, and this account is not root"
    [ ! -e "$state/slurm/slurm.conf" ] || usage_error \
        "Slurm runs on $name already; \`virtual-cluster slurm down --name $name\` ends it"
    local answer=0 gpus=
    [ "$2" -eq 0 ] || gpus=" and $2 fake GPUs"
    "${entrance[@]}" bash "$parts/slurm-daemons" up "$state" "$1" "$2" </dev/null || answer=$?
    if [ "$answer" -ne 0 ]; then
        tail -q -n 1 "$state"/slurm/*.log >&2 || true
        "${entrance[@]}" bash "$parts/slurm-daemons" down "$state" </dev/null || true
        fail "Slurm could not be started on $name; what was started is ended again"
    fi
    say "Slurm is up on $name: $(setting hosts) hosts of $1 processors$gpus; \`virtual-cluster exec --name $name login -- sbatch FILE\`"
}

slurm_down() {
    if [ ! -e "$state/slurm/slurm.conf" ]; then say "no Slurm runs on $name; nothing to end"; return; fi
    "${entrance[@]}" bash "$parts/slurm-daemons" down "$state" </dev/null || fail "Slurm could not be ended on $name"
    say "Slurm is down on $name"
}
