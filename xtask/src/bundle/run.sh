#!/bin/sh
# Runs the programs of a bundle on a machine without Rust. Logs and figures go to results/.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# absolute PATH: programs run in the bundle's folder, whatever folder this was called from.
absolute() {
    case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

results=$(absolute "${IRONWARP_RESULTS:-$here/results}")
# Seconds that one test program may take; under a sanitizer everything is slower.
limit=${IRONWARP_LIMIT:-1800}
export IRONWARP_DRIVER="${IRONWARP_DRIVER:-nvidia}"
IRONWARP_PTX_DIR=$(absolute "${IRONWARP_PTX_DIR:-$here/ptx}")
export IRONWARP_PTX_DIR

usage() {
    cat >&2 <<'EOF'
usage: run test [NAME] [TEST]          test programs whose name contains NAME; of them the tests whose names contain TEST
       run bench [NAME] [ARGUMENTS]    the benchmark NAME, or else those whose name contains it (. for all); figures go to results/
       run sanitize [NAME]             every shipped kernel once, and the device library's tests, under compute-sanitizer's memcheck,
                                       synccheck and racecheck; NAME picks other test programs of the kernels (host. for
                                       all of them: hours), or is the whole name of any test program
       run agree                       every shipped kernel on the executor and on the GPU: how many results are the same to the bit
       run corpus                      the kernels with known bugs, and correct ones, without a tool and under memcheck, racecheck,
                                       initcheck and synccheck: a table of what they and Ironwarp's checker find
       run demo [ARGUMENTS]            the search example

environment: IRONWARP_DRIVER=nvidia|soft   IRONWARP_RESULTS=DIR   IRONWARP_LIMIT=SECONDS
             COMPUTE_SANITIZER=PROGRAM     IRONWARP_SANITIZE_ARGS=ARGUMENTS for the test programs
             IRONWARP_SANITIZE_TOOLS=TOOLS some of memcheck synccheck racecheck
EOF
    exit 2
}

# Unpacks programs and PTX, once for each archive: a later bundle may have been copied over this one. They travel in one
# archive because the same code lies in many of them.
unpack() {
    archive=$here/programs.tar.xz
    [ -f "$archive" ] || return 0
    sum=$(cksum <"$archive") || exit 1
    is_unpacked && return
    # A folder of its own: another `run` may be unpacking too.
    mine=$here/unpacking.$$
    trap 'rm -rf "$mine"' EXIT
    mkdir "$mine" || exit 1
    if command -v xz >/dev/null; then
        xz --decompress --stdout "$archive" | tar -x -C "$mine"
    else
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$archive" "$mine"
    fi
    if [ ! -d "$mine/tests" ]; then
        echo "cannot unpack $archive: neither xz nor python3 did it" >&2
        exit 1
    fi
    # One run at a time puts its own in place.
    waited=0
    until mkdir "$here/placing" 2>/dev/null; do
        waited=$((waited + 1))
        if [ $waited -gt 60 ]; then
            echo "another run has been at $here/placing for a minute: remove that folder if none is" >&2
            exit 1
        fi
        sleep 1
    done
    trap 'rm -rf "$mine" "$here/placing"' EXIT
    # The sum goes first and comes last: what is cut short here begins anew.
    is_unpacked || {
        (cd "$here" && rm -rf unpacked tests benches examples ptx && mv "$mine"/* .) || exit 1
        echo "$sum" >"$here/unpacked"
    }
    rm -rf "$mine" "$here/placing"
    trap - EXIT
}

is_unpacked() {
    [ -d "$here/tests" ] && [ "$sum" = "$(cat "$here/unpacked" 2>/dev/null)" ]
}

# Prints the number before a word of a program's result line, or 0.
count() {
    number=$(sed -n "s/^test result: .* \([0-9][0-9]*\) $2.*/\1/p" "$1" | tail -n 1)
    echo "${number:-0}"
}

# programs FOLDER NAME: the programs of a folder whose name contains NAME, by their names: the folder's may have spaces.
programs() {
    for program in "$here/$1"/*; do
        [ -x "$program" ] || continue
        name=$(basename "$program")
        case $name in *"$2"*) echo "$name" ;; esac
    done
}

# why_not_sanitized PROGRAM NAME: why `sanitize NAME` leaves out a test program whose name contains NAME; empty if it
# runs it. What runs by default is small enough for racecheck, which makes launches a thousand times slower. A NAME picks from all
# programs that test kernels, without those whose kernels are wrong on purpose. A program asked for by its whole name
# runs whatever it is.
why_not_sanitized() {
    [ "$1" = "$2" ] && return
    case $1 in
    host.tour | host.conformance) ;;
    host.ops | host.gemm)
        [ -n "$2" ] || echo "its kernels are in host.tour, on fewer shapes; \`sanitize $1\` runs it" ;;
    host.alone | driver.conformance) echo "its kernels fault on purpose" ;;
    checker.corpus) echo "its kernels are wrong on purpose; \`corpus\` runs them" ;;
    *) echo "tests calls of the host, not kernels" ;;
    esac
}

# needs PROGRAM: a bundle of chosen programs may be without it.
needs() {
    [ -x "$1" ] && return
    echo "this bundle has no ${1##*/}: build it with \`cargo xtask bundle ${1##*/}\`" >&2
    exit 1
}

# sanitized NAME: the test programs that `sanitize NAME` runs.
sanitized() {
    for program in $(programs tests "$1"); do
        [ -n "$(why_not_sanitized "$program" "$1")" ] || echo "$program"
    done
}

report_left_out() {
    for program in $(programs tests "$1"); do
        why=$(why_not_sanitized "$program" "$1")
        [ -z "$why" ] || echo "left out: $program: $why"
    done
}

# arguments_of PROGRAM: what a test program is given. Under a sanitizer the tour goes once, and says where it is.
arguments_of() {
    echo "${arguments:-}"
    case ${sanitizer:+$1} in host.tour) echo "once --nocapture" ;; esac
    # synccheck takes consumers that wait at a named barrier, where producers only arrive, for divergent threads.
    # Every later test of the process fails then. racecheck, in some runs, does not see that arriving there orders accesses.
    case ${sanitizer:+$label.$1} in
    synccheck.host.conformance | racecheck.host.conformance) echo "--skip producers_and_consumers_keep_in_step" ;;
    # synccheck: the same, of consumers of attention's gradients beyond 128 columns. racecheck takes plain bulk copies (not
    # those by maps) into what threads read before for hazards, barriers or not.
    synccheck.host.tour | racecheck.host.tour) echo "--skip attention_once" ;;
    esac
}

# run_all LABEL PROGRAMS COMMAND..: runs each of the test programs behind COMMAND and adds up what it reports.
run_all() {
    label=$1 chosen=$2
    shift 2
    passed=0 failed=0 ignored=0 skipped=0 broken=0 ran=0
    for name in $chosen; do
        log=$results/$label.$name.log
        begun=$(date +%s)
        (cd "$here" && exec timeout -k 5 "$limit" "$@" "$here/tests/$name" $(arguments_of "$name")) >"$log" 2>&1
        status=$?
        took=$(($(date +%s) - begun))
        ran=$((ran + 1))
        # A test that cannot run here says so; its harness counts it as passed.
        unable=$(grep -c '^skipped:' "$log")
        did=$(($(count "$log" passed) - unable))
        [ $did -ge 0 ] || did=0 # It ended without a result.
        skipped=$((skipped + unable))
        passed=$((passed + did))
        failed=$((failed + $(count "$log" failed)))
        ignored=$((ignored + $(count "$log" ignored)))
        verdict=ok
        if [ $status -ne 0 ]; then
            broken=$((broken + 1))
            verdict="FAILED (exit $status)"
            [ $status -eq 124 ] && verdict="FAILED (timed out after $limit s)"
        fi
        printf '%-10s %-32s %5s passed %3s failed %3s skipped %5s s  %s\n' \
            "$label" "$name" "$did" "$(count "$log" failed)" "$unable" "$took" "$verdict"
        if [ $status -ne 0 ]; then
            grep -E '^(---- |test .*FAILED|.*panicked at|error|========= )' "$log" | head -n 40 | sed 's/^/    /'
            echo "    log: $log"
        fi
    done
    word=ok
    if [ $ran -eq 0 ]; then
        echo "no test program to run" >&2
        broken=1
    fi
    [ $broken -eq 0 ] || word=FAILED
    echo "$label: $ran programs, $broken of them failed, driver $IRONWARP_DRIVER"
    echo "test result: $word. $passed passed; $failed failed; $ignored ignored; $skipped skipped"
    [ $broken -eq 0 ]
}

find_sanitizer() {
    for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            absolute "$candidate"
            return
        fi
    done
    echo "no compute-sanitizer; install the CUDA toolkit's, or set COMPUTE_SANITIZER" >&2
    return 1
}

# Processes in the background do not hear of Ctrl-C: stops those of the tools, and the programs that they run.
stop_tools() {
    for process in $running; do
        kill -STOP "$process" && pkill -P "$process"
        kill "$process"
        kill -CONT "$process"
    done
    exit 130
}

sanitize() {
    sanitizer=$(find_sanitizer) || exit 1
    # Tests of wrong calls make the driver return errors on purpose: those are not what is looked for.
    arguments=${IRONWARP_SANITIZE_ARGS:---test-threads=1}
    # A driver allocation for each buffer: within a larger one, accesses beside a buffer would not be seen.
    export IRONWARP_ALLOCATOR=passthrough
    worst=0
    chosen=$(sanitized "$1")
    tools=${IRONWARP_SANITIZE_TOOLS:-memcheck synccheck racecheck}
    # Side by side: each keeps one core busy, and the GPU hardly.
    running=
    trap stop_tools INT TERM
    for tool in $tools; do
        case $tool in
        memcheck) options="--report-api-errors no" ;;
        racecheck) options="--racecheck-report all" ;;
        # Rings of many stages in many blocks: more barriers than it has room for otherwise.
        synccheck) options="--num-cuda-barriers 8192" ;;
        *) options= ;;
        esac
        # Options of two words each.
        # shellcheck disable=SC2086
        run_all "$tool" "$chosen" "$sanitizer" --tool "$tool" --error-exitcode 9 $options >"$results/$tool.txt" 2>&1 &
        running="$running $!"
    done
    for process in $running; do
        wait "$process" || worst=1
    done
    trap - INT TERM
    for tool in $tools; do
        cat "$results/$tool.txt"
    done
    report_left_out "$1"
    echo "left out: synccheck and racecheck of host.conformance, producers_and_consumers_keep_in_step: they do not know bar.arrive"
    echo "left out: synccheck and racecheck of host.tour, attention's gradients: they do not know bar.arrive, and plain bulk copies"
    return $worst
}

bench() {
    wanted=${1:-}
    [ "$wanted" = . ] && wanted=
    [ $# -gt 0 ] && shift
    worst=0 ran=0
    names=$(programs benches "$wanted")
    # ARGUMENTS are for this program, not for another whose name is longer.
    [ -n "$wanted" ] && [ -x "$here/benches/$wanted" ] && names=$wanted
    for name in $names; do
        echo "== $name =="
        ran=$((ran + 1))
        status=0
        # No pipe: its status would be the one of its last part.
        (cd "$here" && exec "$here/benches/$name" --out "$results" "$@") >"$results/bench.$name.log" 2>&1 || status=$?
        cat "$results/bench.$name.log"
        if [ $status -ne 0 ]; then
            echo "FAILED: $name (exit $status)"
            worst=1
        fi
    done
    if [ $ran -eq 0 ]; then
        echo "no benchmark matches '$wanted'" >&2
        worst=1
    fi
    [ $worst -eq 0 ] && echo "bench: $ran programs ok, figures in $results" || echo "bench: FAILED"
    return $worst
}

# bits DRIVER: the tour's stops on one driver, with a digest of their results.
bits() {
    IRONWARP_DRIVER=$1 "$here/tests/host.tour" once --nocapture >"$results/bits.$1.log" 2>&1 || {
        cat "$results/bits.$1.log" >&2
        echo "FAILED: host.tour on the driver $1" >&2
        return 1
    }
    # The test harness prints before the first word of some lines.
    sed -n 's/^.*bits \([0-9a-f]\{16\}\) \(.*\)$/\2 | \1/p' "$results/bits.$1.log" | LC_ALL=C sort >"$results/bits.$1"
    sed 's/ | [0-9a-f]*$//' "$results/bits.$1" | LC_ALL=C sort >"$results/names.$1"
}

# Sums of tensor cores and approximate functions differ in their last bits: tests hold both drivers to one oracle and tolerance. Into how
# many parts k is cut depends on the device, so some stops are one driver's alone.
agree() {
    bits soft && bits nvidia || return 1
    same=$(LC_ALL=C comm -12 "$results/bits.soft" "$results/bits.nvidia" | wc -l)
    LC_ALL=C comm -12 "$results/names.soft" "$results/names.nvidia" >"$results/names.both"
    LC_ALL=C comm -13 "$results/bits.soft" "$results/bits.nvidia" | sed 's/ | [0-9a-f]*$//' |
        LC_ALL=C comm -12 - "$results/names.both" | sed 's/^/differs in some bit: /'
    both=$(wc -l <"$results/names.both")
    alone=$(LC_ALL=C comm -3 "$results/names.soft" "$results/names.nvidia" | wc -l)
    echo "agree: $same of $both results are the same to the bit on the executor and on the GPU; $alone were made on one of them"
    if [ "$both" -eq 0 ]; then
        echo "FAILED: the drivers have no launch in common" >&2
        return 1
    fi
}

# The program runs itself under each tool, many times at once.
corpus() {
    sanitizer=$(find_sanitizer) || exit 1
    exec "$here/tests/checker.corpus" --compare "$results" "$sanitizer"
}

[ $# -gt 0 ] || usage
mkdir -p "$results" || exit 1
unpack
mode=$1
shift
case $mode in
test)
    arguments=${2:-}
    run_all test "$(programs tests "${1:-}")" env
    ;;
bench) bench "$@" ;;
sanitize) sanitize "${1:-}" ;;
agree) needs "$here/tests/host.tour"; agree ;;
corpus) needs "$here/tests/checker.corpus"; corpus ;;
demo) needs "$here/examples/search"; exec "$here/examples/search" "$@" ;;
*) usage ;;
esac
