-- Groups enter the open set, if the cursor is where the caller saw it: the prefix that fits below the cap. With as many
-- groups in `dead` as may lie there no training group does; what is trained can still be measured.
-- ARGV: kind, version (eval: the one measured; train: ''), expected cursor, cursor value, groups,
--       then per group: id, entry values, entry …, body values, body …
local kind, version, expected, value, groups = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local live = state('version')
local evaluations = P .. 'evaluations'
local cursor
if kind == 'eval' then cursor = tonumber(redis.call('HGET', evaluations, version .. '.admitted') or '0')
else cursor = tonumber(state('cursor') == '' and '0' or state('cursor')) end
local cap = tonumber(kind == 'eval' and state('eval_cap') or state('cap'))
local limit = tonumber(state('dead_limit') == '' and '0' or state('dead_limit'))
local stopped = kind == 'train' and limit > 0 and redis.call('XLEN', P .. 'dead') >= limit
local room = stopped and 0 or cap - tonumber(redis.call('HGET', COUNTS, kind .. '.open') or '0')
if cursor ~= expected then return { 'done', cursor, 0, live, math.max(room, 0), stopped and 1 or 0 } end
local n = math.max(0, math.min(groups, room))
local floor = kind == 'eval' and version or live
local last = kind == 'eval' and version or string.format('%d', tonumber(live) + tonumber(state('staleness')))

-- An id that is open already: a training group twice is a broken source; an evaluation asked for again skips it.
local at, starts, entered = 8, {}, 0
for i = 1, n do
  if redis.call('HEXISTS', OPEN, ARGV[at]) == 1 then
    if kind == 'train' then return { 'twice', ARGV[at] } end
  else
    starts[#starts + 1] = at
  end
  local entries = tonumber(ARGV[at + 1])
  at = at + 3 + entries + tonumber(ARGV[at + 2 + entries])
end
for _, start in ipairs(starts) do
  local group, entries = ARGV[start], tonumber(ARGV[start + 1])
  local id = append('prompts', start + 2, entries, floor, last)
  if state('restored') ~= '' then redis.call('DEL', P .. 'group:' .. group) end  -- it may have been buried since
  write_body(group, start + 3 + entries, tonumber(ARGV[start + 2 + entries]))
  point(group, 'prompts', id, { kind = kind, floor = floor, last = last })
  entered = entered + 1
end
if n > 0 then
  count(kind .. '.admitted', entered)
  count(kind .. '.open', entered)
  tick()
  if kind == 'eval' then redis.call('HSET', evaluations, version .. '.admitted', cursor + n)
  else
    redis.call('HSET', RUN, 'cursor', cursor + n)
    redis.call('HDEL', RUN, 'exhausted')
  end
  if n == groups and kind == 'train' then redis.call('HSET', RUN, 'cursor_value', value) end
end
return { 'done', cursor + n, n, live, math.max(room - n, 0), stopped and 1 or 0 }
