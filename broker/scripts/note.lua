-- What a process says about itself; runs on a full server too. ARGV: 'set' hash field text | 'count' hash field
if ARGV[3] == 'count' then return { 'done', redis.call('HINCRBY', P .. ARGV[4], ARGV[5], 1) } end
redis.call('HSET', P .. ARGV[4], ARGV[5], ARGV[6])
return { 'done' }
