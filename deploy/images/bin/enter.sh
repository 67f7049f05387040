#!/bin/sh
# Runs a command in a container of the cluster with its place in the environment: the network calls the container
# PROJECT-slot-2, so the place is slot-2, also when it is made anew. Without such a name it is the host's.
if [ -z "${TIDEMILL_PLACE:-}" ]; then
    place=$(getent -s hosts:dns hosts $(hostname -i) | grep -oE "[a-z]+[-_][0-9]+\." | head -n 1 | tr -d . | tr _ -)
    export TIDEMILL_PLACE="${place:-$(hostname)}"
fi
exec "$@"
