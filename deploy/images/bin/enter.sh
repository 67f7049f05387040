#!/bin/sh
# Runs a command in a container of the cluster with its place in the environment: the network calls the container
# PROJECT-slot-2, so the place is slot-2, also when it is made anew. Without such a name it is the host's. What is run it
# says before anything is loaded: on a busy machine that takes a while.
set -eu
if [ -z "${TIDEMILL_PLACE:-}" ]; then
    # shellcheck disable=SC2046 # one word for each address
    place=$(getent -s hosts:dns hosts $(hostname -i) | grep -oE "[a-z]+[-_][0-9]+\." | head -n 1 | tr -d . | tr _ -)
    export TIDEMILL_PLACE="${place:-$(hostname)}"
fi
echo "$TIDEMILL_PLACE runs: $*" >&2
exec "$@"
