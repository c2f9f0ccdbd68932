# Runs a command inside a root, with a /proc, /dev and /dev/shm of its own, and this machine's Rust, which it may only read.
# shellcheck shell=bash

# All mounts are in a namespace of their own and end with the command, as do all its processes.
inside() { # ROOT LOG SECONDS COMMAND
    local root=$1 log=$2 seconds=$3 command=$4
    mkdir -p "$root/opt/rust/rustup" "$root/opt/rust/cargo" "$root/packages"
    local variables=(HOME=/root LANG=C TERM=dumb RUSTUP_HOME=/opt/rust/rustup CARGO_HOME=/opt/rust/cargo
        PATH=/opt/rust/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
    local name
    for name in http_proxy https_proxy no_proxy CARGO_BUILD_JOBS; do
        [ -z "${!name:-}" ] || variables+=("$name=${!name}")
    done
    # What ends this script ends what runs inside too, and does not leave it the lock. As `unshare` ignores requests to end, it is killed.
    setpriv --pdeathsig TERM timeout --foreground --kill-after 1 "$seconds" unshare --mount --pid --fork --kill-child bash -c '
        set -e
        root=$1 rustup=$2 cargo=$3 packages=$4 command=$5
        shift 5
        bind() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        bind "$rustup" "$root/opt/rust/rustup"
        bind "$cargo" "$root/opt/rust/cargo"
        [ ! -d "$packages" ] || bind "$packages" "$root/packages"
        exec chroot "$root" env -i "$@" bash -c "$command"
    ' inside "$root" "${RUSTUP_HOME:-$HOME/.rustup}" "${CARGO_HOME:-$HOME/.cargo}" "$checkout/target/package" "$command" \
        "${variables[@]}" </dev/null >"$log" 2>&1 9>&-
}
