#!/bin/sh
# One slot: a Celery worker named after its container. The first one trains until a scheduler says otherwise. Where GPUs
# can be seen, slot-1 owns the first, slot-2 the second, and so on.
[ "$TIDEMILL_PLACE" = slot-1 ] && pool=train || pool=rollout
if nvidia-smi -L 2>/dev/null | grep -q GPU; then
    export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-$((${TIDEMILL_PLACE##*-} - 1))}"
fi
# Events and heartbeats let Flower see it.
exec celery -q -A scheduler.slots worker -n "$TIDEMILL_PLACE@%h" -P prefork -c 1 -Q control -E --without-gossip \
    --without-mingle --loglevel warning --slot "$TIDEMILL_PLACE" --initial-pool "$pool"
