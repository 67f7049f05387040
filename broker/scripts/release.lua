-- The group is given back: to its own stage as a new entry, or (recycle) to `prompts` with a new floor.
-- ARGV: group, stream, id, reader, 'stage' | 'recycle', epoch (trainers; ''), entry values, entry …
local group, stream, id, reader, form, epoch, entries = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
if epoch ~= '' and epoch ~= state('epoch') then return { 'fenced', state('epoch') } end
local line = live_line(group, stream, id)
if not line then return { 'superseded' } end
if not owned(stream, id, reader) then return { 'not_owner' } end
local to, size = stream, nil
if form == 'recycle' then
  to = 'prompts'
  if line.kind == 'train' then
    line.floor = state('version')
    line.last = string.format('%d', tonumber(line.floor) + tonumber(state('staleness')))
  end
  size = only_prompt(group)
end
local new = append(to, 10, entries, line.floor, line.last, size)
point(group, to, new, line)
settle(stream, id)
tick()
return { 'done' }
