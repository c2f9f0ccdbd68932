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
        try run "$folder" 3600 'cd /root/commgauge && ./scripts/run'
        try test "$folder" 7200 'cd /root/commgauge && ./scripts/test --quick'
    fi
    line=${line%,}
    $keep || rm -rf "$folder"
    $all_ok
}
