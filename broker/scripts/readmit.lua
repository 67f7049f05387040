-- Groups that are open but have no entry since a restore get one again, with a new floor.
-- ARGV: groups, then per group as in admit
local groups, at, revived = tonumber(ARGV[3]), 4, 0
for _ = 1, groups do
  local group, entries = ARGV[at], tonumber(ARGV[at + 1])
  local bodies = tonumber(ARGV[at + 2 + entries])
  local line = line_of(group)
  if line and line.stream == '-' then
    if line.kind == 'train' then
      line.floor = state('version')
      line.last = string.format('%d', tonumber(line.floor) + tonumber(state('staleness')))
    end
    local id = append('prompts', at + 2, entries, line.floor, line.last)
    redis.call('DEL', P .. 'group:' .. group)
    write_body(group, at + 3 + entries, bodies)
    point(group, 'prompts', id, line)
    revived = revived + 1
  end
  at = at + 3 + entries + bodies
end
if revived > 0 then tick() end
return { 'done', revived }
