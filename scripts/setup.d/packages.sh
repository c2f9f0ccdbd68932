# Installs the packages that are missing, or says what to do where that cannot be.
# shellcheck shell=bash

say_missing() {
    if $dry_run; then
        echo "setup: these packages are missing and would be installed:"
    else
        echo "setup: these packages are missing and will be installed:"
    fi
    local index
    for index in "${!missing[@]}"; do
        printf '  %-16s %s\n' "${missing[$index]}" "${reasons[$index]}"
    done
}

install_packages() {
    local apt as_root=() log
    apt=$(program apt-get) ||
        stop 6 "there is no apt-get here; install them by hand, on Fedora and its kin with: dnf install ${fedora[*]} (and then: module load mpi)"
    if [ "$(user_number)" -ne 0 ]; then
        as_root=("$(program sudo)") || stop 6 "this account is neither root nor has sudo; let root run: apt-get install ${missing[*]}"
    fi
    log=$(temporary) || exit
    as_root+=(env DEBIAN_FRONTEND=noninteractive "$apt")
    # The lists of packages are fetched only where the ones at hand do not do.
    local install=(install -y --no-install-recommends "${missing[@]}") ended=0
    if ! "${as_root[@]}" "${install[@]}" </dev/null >"$log" 2>&1; then
        { "${as_root[@]}" update && "${as_root[@]}" "${install[@]}"; } </dev/null >"$log" 2>&1 || ended=1
    fi
    local text
    text=$(<"$log")
    rm -f "$log"
    [ "$ended" -eq 0 ] || say_failure "$text"
}

say_failure() { # WHAT_APT_SAID
    local last
    last=$(grep '^E: ' <<<"$1" | tail -n 1) || last=$(tail -n 1 <<<"$1")
    case "$1" in
        *"Temporary failure"* | *"Could not resolve"* | *"Could not connect"* | *"Failed to fetch"* | *"Cannot initiate"*)
            stop 6 "apt-get reaches no archive of packages from here ($last); give this machine a network or a mirror in /etc/apt, or install by other means: ${missing[*]}" ;;
        *)
            stop 6 "apt-get could not install ${missing[*]} (${last:-it says nothing}); run \`apt-get install ${missing[*]}\` as root and see what it says" ;;
    esac
}
