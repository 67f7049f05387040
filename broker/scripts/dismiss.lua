-- A reader's name goes only when nothing is pending under it: entries would be lost with the name. ARGV: stream, reader
local pending = redis.call('XPENDING', P .. ARGV[3], ROLE[ARGV[3]], '-', '+', 1, ARGV[4])
if #pending > 0 then return { 'not_owner' } end
redis.call('XGROUP', 'DELCONSUMER', P .. ARGV[3], ROLE[ARGV[3]], ARGV[4])
return { 'done' }
