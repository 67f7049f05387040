-- The group cannot be worked on: to `dead` with the reason, its body kept.
-- ARGV: group, stream, id, reader, reason, epoch (trainers; ''), entry values, entry …
local group, stream, id, reader, reason, epoch, entries = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
if epoch ~= '' and epoch ~= state('epoch') then return { 'fenced', state('epoch') } end
local line = live_line(group, stream, id)
if not line then return { 'superseded' } end
if not owned(stream, id, reader) then return { 'not_owner' } end
local fields = { 'reason', reason, 'stage', stream }
for i = 10, 9 + entries do fields[#fields + 1] = ARGV[i] end
redis.call('XADD', P .. 'dead', '*', 'floor', line.floor, 'last_version', line.last, unpack(fields))
settle(stream, id)
close(group, line)
if line.kind == 'eval' then redis.call('HINCRBY', P .. 'evaluations', line.floor .. '.wanted', -1) end
count(line.kind .. '.buried', 1)
tick()
return { 'done' }
