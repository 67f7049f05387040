-- A supervisor says what it obeys. A server that lost its records takes them back; else the record is what counts.
-- ARGV: key prefix, slot, pool it obeys, epoch of that, its number among the slot's hosts
local key = ARGV[1] .. 'slot:' .. ARGV[2]
if tonumber(ARGV[5]) < tonumber(redis.call('HGET', key, 'host') or '0') then
  return { 'fenced', redis.call('HGET', ARGV[1] .. 'said', ARGV[2]) or '{}' }
end
redis.call('SADD', ARGV[1] .. 'slots', ARGV[2])
local known = redis.call('HGET', key, 'epoch')
if not known or tonumber(known) < tonumber(ARGV[4]) then
  redis.call('HSET', key, 'pool', ARGV[3], 'epoch', ARGV[4], 'reason', known and 'the slot remembers more' or 'what the slot came with', 'by', 'slot ' .. ARGV[2], 'at', redis.call('TIME')[1])
end
redis.call('HSET', key, 'host', ARGV[5])
return { 'done', redis.call('HGETALL', key) }
