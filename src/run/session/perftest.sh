# One side of perftest's `ib_write_bw`: sh -c ... sh ADAPTER GPU SERVER, where GPU and SERVER are empty for host memory and for the side that is
# written to. The side that writes prints its JSON. What fails is said in a line, with exit code 1. SIGTERM ends a side well.
adapter=$1 gpu=$2 server=$3 limit=30
fail() { echo "$*"; exit 1; }
command -v ib_write_bw >/dev/null || fail "ib_write_bw of perftest is not on PATH"
help=$(timeout "$limit" ib_write_bw --help 2>&1 </dev/null)
case $help in *--out_json*) ;; *) fail "ib_write_bw has no --out_json; accepted: perftest from 2021 on" ;; esac
set -- -d "$adapter" -F --report_gbits -s 1048576 -D 3
if [ -n "$gpu" ]; then
    case $help in *--use_cuda_bus_id*) ;; *) fail "ib_write_bw was built without CUDA" ;; esac
    set -- "$@" "--use_cuda_bus_id=$gpu"
fi
said=$(mktemp) || fail "no temporary file can be made"
trap 'rm -f "$said" "$said.json"' EXIT
trap 'kill "$pid" 2>/dev/null; exit 0' TERM
[ -z "$server" ] || set -- "$@" --out_json "--out_json_file=$said.json" "$server"
# The other side may not listen yet.
tries=25
while :; do
    timeout "$limit" ib_write_bw "$@" >"$said" 2>&1 </dev/null & pid=$!
    wait "$pid" && break
    code=$?
    [ "$code" != 124 ] || fail "ib_write_bw did not end within $limit s"
    tries=$((tries - 1))
    case $(cat "$said") in *"Couldn't connect"*) [ "$tries" = 0 ] || { sleep 0.2; continue; } ;; esac
    fail "ib_write_bw ended with $code: $(grep . "$said" | tail -n 1)"
done
[ -z "$server" ] || cat "$said.json" 2>/dev/null || fail "ib_write_bw wrote no JSON"
