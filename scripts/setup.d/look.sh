# Where to search programs and files: on PATH and from /, or in a folder that serves as / (--root), as in tests.
# shellcheck shell=bash

root=
# Where rustup puts cargo, for a shell that does not know it yet, and what Debian hides from those who are not root.
search_path="$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:/usr/sbin:/sbin"

look_in() { # FOLDER
    root=$1
    search_path="$root/usr/local/bin:$root/usr/bin:$root/bin:$root/usr/sbin"
}

# The path of a program; nothing, and 1, where it is missing.
program() { PATH=$search_path type -P -- "$1"; }
has() { program "$1" >/dev/null; }

user_number() { "$(program id)" -u; }

temporary() { mktemp "$@" 2>/dev/null || stop 6 "no temporary file can be made; name a folder that can be written to in TMPDIR"; }

stop() { # EXIT_CODE SENTENCE
    echo "setup: $2" >&2
    exit "$1"
}
