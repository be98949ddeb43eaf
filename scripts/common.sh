# Knows how to find Python, make the virtual environment and end what was started; does not know what runs.
# To be sourced. Sets `root`; after need_venv, `python` and `psboost` are those of the environment.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

die() {
    say "${0##*/}: $*"
    exit 1
}

# Prints the newest interpreter that psboost runs on and that can make an environment.
find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3 python; do
        if command -v "$name" >/dev/null &&
            "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    die "psboost needs Python 3.11 or newer with its venv module; install it (Debian, Ubuntu: \
apt install python3 python3-venv) and start again"
}

# need_venv EXTRA: make .venv hold psboost and the packages of EXTRA ('', 'test' or 'experiments').
# The stamp hashes pyproject.toml and the folder: a changed dependency or a moved project installs again.
need_venv() {
    local extra=$1 venv=$root/.venv base stamp
    python=$venv/bin/python
    psboost=$venv/bin/psboost
    if ! "$python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        base=$(find_python)
        say "making a virtual environment in $venv with $("$base" --version)"
        "$base" -m venv --clear "$venv"
    fi
    stamp=$({ cat "$root/pyproject.toml" && printf '%s' "$root"; } |
        "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
    if [[ -x $psboost ]] && { stamped "$extra" "$stamp" || { [[ -z $extra ]] && stamped test "$stamp"; }; }; then
        return
    fi
    say "installing psboost${extra:+ with its extra '$extra'} into $venv (a minute or two, once)"
    "$python" -m pip install --quiet --disable-pip-version-check -e "$root${extra:+[$extra]}" ||
        die "the installation failed; its own words are above"
    printf '%s\n' "$stamp" >"$venv/installed-${extra:-run}"
}

stamped() { [[ $(cat "$root/.venv/installed-${1:-run}" 2>/dev/null) == "$2" ]]; }

# Prints "WORKERS SERVERS" of the command line that the coordinator is to get, by psboost's own rules.
count_roles() {
    "$python" - "$@" <<'PYTHON'
import argparse, os, sys
from psboost.config import add_flags, config_from_args
from psboost.errors import ParameterError
parser = argparse.ArgumentParser("psboost coordinator", allow_abbrev=False)
add_flags(parser)
try:
    config = config_from_args(parser.parse_args(), os.environ)
except ParameterError as error:
    sys.exit(f"psboost: {error}")
print(config.n_workers, config.n_servers)
PYTHON
}

# Call before the first background job: whatever ends this script ends its jobs, and no other process.
stop_at_exit() {
    trap stop_jobs EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# Only jobs that still run are signalled: the number of one that has ended may belong to a stranger by now.
stop_jobs() {
    trap - EXIT
    trap '' INT TERM HUP
    signal_jobs TERM
    wait_for_jobs
    signal_jobs KILL
    wait
}

signal_jobs() {
    local pid
    for pid in $(jobs -pr); do
        kill "-$1" "$pid" 2>/dev/null || true
    done
}

# Gives the jobs five seconds to end.
wait_for_jobs() {
    local waited
    for ((waited = 0; waited < 50; waited++)); do
        [[ -n $(jobs -pr) ]] || return 0
        sleep 0.1
    done
}

# Waits for the job that is the coordinator, then for the others, and exits with the coordinator's exit code.
wait_for_coordinator() {
    local code=0
    wait "$1" || code=$?
    wait_for_jobs
    exit "$code"
}
