# Whether Rust is there and new enough, and whether cargo can fetch and keep what commgauge is built of.
# shellcheck shell=bash

# The oldest Rust that builds it.
oldest_rust() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml; }

check_rust() {
    local wanted text found
    wanted=$(oldest_rust)
    if ! has cargo || ! has rustc; then
        stop 2 "there is no Rust here; get Rust $wanted or newer with rustup (https://rustup.rs)"
    fi
    # Rustup's stand-ins are there without a toolchain too, and then say so.
    if ! text=$("$(program rustc)" --version 2>&1); then
        stop 2 "$(program rustc) does not run (it says \`$(head -n 1 <<<"$text")\`); get Rust $wanted or newer with \`rustup default stable\`"
    fi
    found=$(awk '{print $2}' <<<"$text")
    if [ "$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" != "$wanted" ]; then
        stop 2 "$(program rustc) is Rust $found, and $wanted or newer is needed; \`rustup update\` gets it, and its folder must stand before others on PATH"
    fi
}

# Cargo downloads into its own folder; if everything is there already, neither a network nor write permission is needed.
check_crates() {
    local cargo folder text
    cargo=$(program cargo)
    if "$cargo" fetch --locked --offline >/dev/null 2>&1 </dev/null; then return; fi
    if $dry_run; then
        echo "setup: the crates that Cargo.lock names would be fetched"
        return
    fi
    folder=${CARGO_HOME:-${HOME:-/root}/.cargo}
    if ! { mkdir -p "$folder" && : >"$folder/.commgauge-writes"; } 2>/dev/null; then
        stop 2 "$folder cannot be written to, and cargo keeps there what it downloads; name another folder: export CARGO_HOME=/tmp/cargo-$(user_number)"
    fi
    rm -f "$folder/.commgauge-writes"
    echo "setup: fetching the crates that Cargo.lock names"
    if ! text=$("$cargo" fetch --locked 2>&1 </dev/null); then
        stop 6 "cargo cannot fetch the crates ($(last_words "$text")); give this machine a network or a proxy (https_proxy), or copy $folder/registry from one that has them"
    fi
}

# The last line that says anything.
last_words() { sed -n 's/^ *//; /[a-z]/h; ${x;p}' <<<"$1"; }
