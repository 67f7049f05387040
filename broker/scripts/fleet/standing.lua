#!lua flags=no-writes
-- Where a fleet stands, as one cut. ARGV: key prefix of the fleet
local P = ARGV[1]
local records, story = {}, redis.call('XREVRANGE', P .. 'decisions', '+', '-', 'COUNT', 1)
for _, slot in ipairs(redis.call('SMEMBERS', P .. 'slots')) do
  records[#records + 1] = slot
  records[#records + 1] = redis.call('HGETALL', P .. 'slot:' .. slot)
end
return {
  redis.call('TIME'),
  redis.call('HGET', P .. 'run', 'run') or '',
  redis.call('HGETALL', P .. 'leader'),
  records,
  redis.call('HGETALL', P .. 'said'),
  story[1] or {},
}
