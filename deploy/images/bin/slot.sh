#!/bin/sh
# One slot: a Celery worker named after its container. The first one trains until a scheduler says otherwise.
[ "$TIDEMILL_PLACE" = slot-1 ] && pool=train || pool=rollout
exec celery -q -A scheduler.slots worker -n "$TIDEMILL_PLACE@%h" -P prefork -c 1 -Q control --without-gossip \
    --without-mingle --without-heartbeat --loglevel warning --slot "$TIDEMILL_PLACE" --initial-pool "$pool"
