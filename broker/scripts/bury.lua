-- The group cannot be worked on: to `dead` with the reason, its body kept.
-- ARGV: group, stream, id, reader, reason, entry values, entry …
local group, stream, id, reader, reason, entries = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local line = live_line(group, stream, id)
if not line then return { 'superseded' } end
if not owned(stream, id, reader) then return { 'not_owner' } end
local fields = { 'reason', reason, 'stage', stream }
for i = 9, 8 + entries do fields[#fields + 1] = ARGV[i] end
redis.call('XADD', P .. 'dead', '*', unpack(fields))
settle(stream, id)
close(group, line)
count(line.kind .. '.buried', 1)
tick()
return { 'done' }
