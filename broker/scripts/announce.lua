-- The live version again, under a new epoch: its tensors were lost and rebuilt.
-- ARGV: our epoch, version, its epoch, announcement
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
if state('version') ~= ARGV[4] then return { 'not_parent', state('version'), state('version_epoch') } end
redis.call('HSET', RUN, 'version_epoch', ARGV[5], 'announcement', ARGV[6])
redis.call('HSET', P .. 'versions', ARGV[4], ARGV[6])
redis.call('XADD', P .. 'weights', 'MAXLEN', '~', 1000, '*', 'version', ARGV[4], 'epoch', ARGV[5], 'announcement', ARGV[6])
tick()
return { 'done' }
