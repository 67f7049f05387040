-- A trainer's epoch, already claimed on the store, fences every lower one; the run may be closed or absent.
-- ARGV: '', epoch
if tonumber(state('epoch') == '' and '0' or state('epoch')) >= tonumber(ARGV[3]) then return { 'fenced', state('epoch') } end
redis.call('HSET', RUN, 'epoch', ARGV[3])
return { 'done' }
