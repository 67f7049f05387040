-- The group goes on: next entry appended, body grown, this entry settled, the open set moved.
-- ARGV: group, stream, id, next stream, entry values, entry …, body values, body …
local group, stream, id, next_stream, entries = ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local line = live_line(group, stream, id)
if not line then return { 'superseded' } end
local new = append(next_stream, 8, entries, line.floor, line.last)
write_body(group, 9 + entries, tonumber(ARGV[8 + entries]))
point(group, next_stream, new, line)
settle(stream, id)
tick()
return { 'done' }
