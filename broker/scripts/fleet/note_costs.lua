-- What moves cost, as the leader measured. ARGV: key prefix, leader, its epoch, then pool and seconds, again and again
local P = ARGV[1]
local holder, epoch = redis.call('HGET', P .. 'leader', 'holder') or '', redis.call('HGET', P .. 'leader', 'epoch') or '0'
if holder ~= ARGV[2] or epoch ~= ARGV[3] then return { 'fenced', holder, epoch } end
for at = 4, #ARGV, 2 do redis.call('HSET', P .. 'costs', ARGV[at], ARGV[at + 1]) end
return { 'done' }
