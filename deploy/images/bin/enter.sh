#!/bin/sh
# Runs a command in a container of the cluster: with the server's address and this container's place in the environment.
# Called as `tidemill` or `celery` (links to it) it runs that command, so `docker compose exec` needs no word more.
# The password comes from a file and stays out of the container's description.
secret=/run/secrets/redis-password
if [ -z "${TIDEMILL_BROKER_URL:-}" ] && [ -r $secret ]; then
    export TIDEMILL_BROKER_URL="redis://:$(cat $secret)@redis:6379/0"
fi
# The network calls a container PROJECT-slot-2; without such a name the place is the host's name.
if [ -z "${TIDEMILL_PLACE:-}" ]; then
    place=$(getent -s hosts:dns hosts $(hostname -i) | grep -oE "[a-z]+[-_][0-9]+\." | head -n 1 | tr -d . | tr _ -)
    export TIDEMILL_PLACE="${place:-$(hostname)}"
fi
name=${0##*/}
[ "$name" = enter.sh ] || set -- "/opt/tidemill/.venv/bin/$name" "$@"
exec "$@"
