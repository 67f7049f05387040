-- Which run the fleet works for, told to a server that may have lost it. ARGV: key prefix, then field and value, again
-- and again; the answer is the run that is named now
local key = ARGV[1] .. 'run'
if redis.call('EXISTS', key) == 0 then redis.call('HSET', key, unpack(ARGV, 2)) end
return redis.call('HGETALL', key)
