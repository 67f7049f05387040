-- A supervisor's report. ARGV: key prefix, slot, report, its number among the slot's hosts
local key = ARGV[1] .. 'said'
if tonumber(ARGV[4]) < tonumber(redis.call('HGET', ARGV[1] .. 'slot:' .. ARGV[2], 'host') or '0') then
  return { 'fenced', redis.call('HGET', key, ARGV[2]) or '{}' }
end
redis.call('HSET', key, ARGV[2], ARGV[3])
return { 'done' }
