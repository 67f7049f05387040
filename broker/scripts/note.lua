-- What a process says about itself; runs on a full server too. ARGV: 'beat' hash field JSON object, which gets the time;
-- 'count' hash field
if ARGV[3] == 'count' then return { 'done', redis.call('HINCRBY', P .. ARGV[4], ARGV[5], 1) } end
local time, said = redis.call('TIME'), ARGV[6]
said = string.format('{"at": %d.%06d%s%s', time[1], time[2], said == '{}' and '' or ', ', said:sub(2))
redis.call('HSET', P .. ARGV[4], ARGV[5], said)
return { 'done' }
