-- The source ends here: the last batch may be short. ARGV: cursor
if state('cursor') ~= ARGV[3] then return { 'done', 0 } end
redis.call('HSET', RUN, 'exhausted', '1')
tick()
return { 'done', 1 }
