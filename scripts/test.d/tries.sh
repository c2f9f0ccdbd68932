# Sourced by scripts/test: its log, stream_log, again and second_log are files, and step and failed are its functions.
# shellcheck shell=bash disable=SC2154
#
# A test that failed is tried once more at the end, alone on the machine: launches have deadlines of a few seconds, and a machine whose
# processors are taken away may stand still for longer. What passes then counts as passed, and is named, as its cause is yet to be found.

# Names of the tests that failed: the indented lines of the second list under `failures:`.
failed_tests() { # OUTPUT OF CARGO TEST
    awk '/^failures:$/ { list = 1; next }
         list && /^    [^ ]+$/ { print substr($0, 5); next }
         !/^$/ { list = 0 }' "$1"
}

# Whether each target that failed ran to its end, and the names of all tests that failed are known.
failures_are_known() { # OUTPUT OF CARGO TEST, NUMBER OF NAMES
    awk -v names="$2" '
        /^test result: FAILED/ { listed++; tests += $6 }
        /^error: [0-9]+ targets? failed:$/ { failed = $2 }
        END { exit !(failed > 0 && listed == failed && tests == names) }' "$1"
}

# Runs `cargo test`. Fails if it cannot be said which tests failed; those of which it can are noted for a second try.
run_tests() { # ARGUMENTS OF CARGO TEST
    local output ended=0 name names=()
    output=$(mktemp)
    cargo test --locked --no-fail-fast "$@" </dev/null 2>&1 | tee "$output" || ended=1
    cat "$output" >>"$log"
    while IFS= read -r name; do names+=("$name"); done < <(failed_tests "$output")
    if [ "$ended" -ne 0 ] && failures_are_known "$output" "${#names[@]}"; then
        note_for_second_try "${names[@]}" -- "$@"
        ended=0
    fi
    rm -f "$output"
    return "$ended"
}

# A line for each `cargo test` with failures: the variables that choose the MPI, its own arguments, and those of the tests.
note_for_second_try() { # NAME... -- ARGUMENTS OF CARGO TEST
    local names=() variables=() arguments=() variable
    while [ "$1" != -- ]; do names+=("$1"); shift; done
    shift
    while [ "$#" -gt 0 ] && [ "$1" != -- ]; do arguments+=("$1"); shift; done
    for variable in MPICC CARGO_TARGET_DIR; do
        if [ -n "${!variable:-}" ]; then variables+=("$variable=${!variable}"); fi
    done
    printf '%q ' env "${variables[@]}" cargo test --locked --no-fail-fast "${arguments[@]}" -- --exact --test-threads 1 \
        "${names[@]}" >>"$again"
    printf '\n' >>"$again"
}

# Tries again what failed, when nothing else of the tests runs any more. Each test must have run and passed, whatever cargo says.
try_again() {
    local line output ended
    [ -s "$again" ] || return 0
    step "second try of what failed, alone"
    output=$(mktemp)
    while IFS= read -r line; do
        ended=0
        eval "$line" </dev/null 2>&1 | tee "$output" || ended=1
        cat "$output" >>"$second_log"
        awk -v names="$(wc -w <<<"${line##* --test-threads 1 }")" '
            /^test result:/ { passed += $4 }
            END { exit !(passed >= names) }' "$output" || ended=1
        if [ "$ended" -eq 0 ]; then
            # What children of a test print may break the line of its result in two, so the names are those that were asked for.
            printf 'passed alone: %s\n' "${line##* --test-threads 1 }" >>"$second_log"
        else
            failed "a test at both tries"
        fi
    done <"$again"
    rm -f "$output"
}

# Output of each failed test, at the end of a long output.
print_failures() {
    awk 'FNR == 1 { printing = 0 }
         /^---- .* stdout ----$/ { printing = 40 }
         /^failures:$/ { printing = 0 }
         printing > 0 { printing--; print (printing == 0 ? "[...]" : $0) }' "$log" "$stream_log" "$second_log"
}

# The counts of every `test result:` line since the start, over both MPIs and both tries, and what was left out: steps of the script, and
# tests that printed `SKIPPED name: reason` and that cargo counts as passed.
print_totals() { # STEPS THAT WERE LEFT OUT, SEPARATED BY COMMAS
    awk -v steps="$1" '
        FILENAME == ARGV[3] {
            if (/^test result:/) { passed += $4; failed -= $4 }
            if (/^passed alone: /) { for (word = 3; word <= NF; word++) { again = again (again == "" ? "" : ", ") $word } }
            next
        }
        /^test result:/ { passed += $4; failed += $6; ignored += $8 }
        match($0, /SKIPPED [^:]+: /) {
            name = substr($0, RSTART + 8, RLENGTH - 10)
            reason = substr($0, RSTART + RLENGTH)
            if (reason in names) { names[reason] = names[reason] ", " name }
            else { names[reason] = name; reasons[++kinds] = reason }
            count[reason]++
            tests++
        }
        END {
            gsub(",", ", ", steps)
            left_out = steps
            for (kind = 1; kind <= kinds; kind++) {
                reason = reasons[kind]
                left_out = left_out (left_out == "" ? "" : "; ") count[reason] (count[reason] == 1 ? " test" : " tests") " (" names[reason] "): " reason
            }
            if (again != "") { print "passed only at the second try, alone on the machine: " again }
            printf "%d passed, %d failed, %d ignored; skipped: %s\n", \
                passed - tests, failed, ignored, left_out == "" ? "nothing" : left_out
        }' "$log" "$stream_log" "$second_log"
}
