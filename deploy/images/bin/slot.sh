#!/bin/sh
# One slot: a Celery worker named after its container. The first one trains until a scheduler says otherwise. Where GPUs
# can be seen, slot-1 owns the first, slot-2 the second, and so on; one for which none is left does not start.
set -eu
[ "$TIDEMILL_PLACE" = slot-1 ] && pool=train || pool=rollout
gpus=$(nvidia-smi -L 2>/dev/null | grep -c "^GPU ") || true # none is counted as 0 too
if [ "$gpus" -gt 0 ] && [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
    number=${TIDEMILL_PLACE##*-}
    if [ "$number" -gt "$gpus" ]; then
        echo "$TIDEMILL_PLACE has no GPU: $gpus can be seen here, and each slot needs one; nothing was started;" \
            "ask for $gpus or fewer, as with --scale slot=$gpus" >&2
        exit 2
    fi
    export CUDA_VISIBLE_DEVICES="$((number - 1))"
fi
# Events and heartbeats let Flower see it.
exec celery -q -A scheduler.slots worker -n "$TIDEMILL_PLACE@%h" -P prefork -c 1 -Q control -E --without-gossip \
    --without-mingle --loglevel warning --slot "$TIDEMILL_PLACE" --initial-pool "$pool"
