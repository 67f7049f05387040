-- An entry that nobody can work on: unreadable, or not the one that the open set names for its group.
-- Where it is an open group's one entry the group is buried, else the entry alone goes, to `refused`, and no book changes.
-- ARGV: stream, id, reason
local stream, id, reason = ARGV[3], ARGV[4], ARGV[5]
local found = redis.call('XRANGE', P .. stream, id, id)
if #found == 0 then return { 'gone' } end
local all = flat(OPEN)
for i = 1, #all, 2 do
  local line = line_of(all[i])
  if line and line.stream == stream and line.id == id then
    local size = redis.call('HGET', P .. 'group:' .. all[i], 'size') or ''
    size = size:match('^%d%d?%d?%d?%d?$') or '1'
    redis.call('XADD', P .. 'dead', '*', 'reason', reason, 'stage', stream, 'group', all[i], 'kind', line.kind, 'size', size,
      'floor', line.floor, 'last_version', line.last, 'schema', 'group/1')
    settle(stream, id)
    close(all[i], line)
    if line.kind == 'eval' then redis.call('HINCRBY', P .. 'evaluations', line.floor .. '.wanted', -1) end
    count(line.kind .. '.buried', 1)
    tick()
    return { 'buried', all[i] }
  end
end
local said = found[1][2]
local fields = { 'reason', reason, 'stage', stream, 'entry', id }
for i = 1, math.min(#said, 40), 2 do
  fields[#fields + 1] = 'said.' .. said[i]:sub(1, 100)
  fields[#fields + 1] = said[i + 1]:sub(1, 200)
end
redis.call('XADD', P .. 'refused', 'MAXLEN', '~', 1000, '*', unpack(fields))
settle(stream, id)
return { 'refused' }
