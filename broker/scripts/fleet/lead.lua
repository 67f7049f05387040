-- The lease of the one scheduler that may move slots. ARGV: key prefix, holder, milliseconds (0: give it up)
local key = ARGV[1] .. 'leader'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, till = redis.call('HGET', key, 'holder') or '', tonumber(redis.call('HGET', key, 'until') or '0')
if holder ~= ARGV[2] and till > now then return { 'held', holder, till - now } end
if tonumber(ARGV[3]) == 0 then
  if holder == ARGV[2] then redis.call('HSET', key, 'until', 0) end
  return { 'done', 0 }
end
if holder ~= ARGV[2] or till <= now then redis.call('HINCRBY', key, 'epoch', 1) end
redis.call('HSET', key, 'holder', ARGV[2], 'until', now + tonumber(ARGV[3]))
return { 'done', redis.call('HGET', key, 'epoch') }
