-- A claim on a version that may still be served. ARGV: version, holder, seconds
local announcement = redis.call('HGET', P .. 'versions', ARGV[3])
if not announcement then return { 'gone' } end
redis.call('ZADD', P .. 'holds', now() + tonumber(ARGV[5]), ARGV[3] .. ' ' .. ARGV[4])
return { 'done', announcement }
