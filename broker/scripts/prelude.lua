-- Set before every verb. ARGV[1] key prefix of the run, ARGV[2] incarnation the caller entered.
-- A verb checks everything before its first write: nothing is rolled back.
local P, INC = ARGV[1], ARGV[2]
local RUN, OPEN, COUNTS = P .. 'run', P .. 'open', P .. 'counts'
local ROLE = { prompts = 'rollout', rollouts = 'reward', scored = 'trainer' }

local function state(field) return redis.call('HGET', RUN, field) or '' end
local function tick() redis.call('HINCRBY', RUN, 'tick', 1) end
local function count(name, by) redis.call('HINCRBY', COUNTS, name, by) end
local function now() return tonumber(redis.call('TIME')[1]) end

local function line_of(group)
  local line = redis.call('HGET', OPEN, group)
  if not line then return nil end
  local stream, id, kind, floor, last = line:match('^(%S+) (%S+) (%S+) (%-?%d+) (%-?%d+)$')
  return { stream = stream, id = id, kind = kind, floor = floor, last = last }
end

local function live_line(group, stream, id)
  local line = line_of(group)
  if line and line.stream == stream and line.id == id then return line end
  return nil
end

local function point(group, stream, id, line)
  redis.call('HSET', OPEN, group, table.concat({ stream, id, line.kind, line.floor, line.last }, ' '))
end

local function settle(stream, id)
  redis.call('XACK', P .. stream, ROLE[stream], id)
  redis.call('XDEL', P .. stream, id)
end

local function owned(stream, id, reader)
  local pending = redis.call('XPENDING', P .. stream, ROLE[stream], id, id, 1)
  return #pending == 1 and pending[1][2] == reader
end

-- Fields of one entry, ARGV[first] .. ARGV[first + n - 1]; an entry has a dozen, so unpack is safe.
local function append(stream, first, n, floor, last, size)
  local fields = {}
  for i = first, first + n - 1 do fields[#fields + 1] = ARGV[i] end
  fields[#fields + 1] = 'floor'; fields[#fields + 1] = floor
  fields[#fields + 1] = 'last_version'; fields[#fields + 1] = last
  if size then fields[#fields + 1] = 'bytes'; fields[#fields + 1] = size end
  return redis.call('XADD', P .. stream, '*', unpack(fields))
end

-- Pairs ARGV[first] .. ARGV[first + n - 1], a hundred at a time: unpack has a limit, and a call per field costs.
local function write_body(group, first, n)
  local last = first + n - 1
  for at = first, last, 200 do
    redis.call('HSET', P .. 'group:' .. group, unpack(ARGV, at, math.min(at + 199, last)))
  end
end

local function close(group, line)
  redis.call('HDEL', OPEN, group)
  count(line.kind .. '.open', -1)
end

-- Fields of a line of `dead`; or nil and why it is none: it has gone, or its group is open (again).
local function buried(group, id)
  local lines = redis.call('XRANGE', P .. 'dead', id, id)
  if #lines == 0 then return nil, 'gone' end
  local said = {}
  for i = 1, #lines[1][2], 2 do said[lines[1][2][i]] = lines[1][2][i + 1] end
  if said.group ~= group then return nil, 'gone' end
  if redis.call('HEXISTS', OPEN, group) == 1 then return nil, 'open' end
  return said
end

-- Whether the server lost data since this line of `dead`: what became of the group meanwhile, it cannot know.
local function forgotten(id)
  local mark = state('restored')
  if mark == '' then return false end
  local a, b = id:match('^(%d+)%-(%d+)$')
  local c, d = mark:match('^(%d+)%-(%d+)$')
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  return a < c or (a == c and b <= d)
end

-- What the stages after `prompts` wrote is forgotten; answers the bytes that are left.
local function only_prompt(group)
  local body, size = P .. 'group:' .. group, 0
  for _, field in ipairs(redis.call('HKEYS', body)) do
    if field:match('^r%d+%.') or field:match('^actions:') or field:match('^offsets:') or field:match('^logprobs:')
      or field:match('^mask:') or field:match('^spans:') or field:match('^rewards:') or field:match('^part%.') then
      redis.call('HDEL', body, field)
    end
  end
  for _, part in ipairs(redis.call('HGETALL', body)) do size = size + #part end
  return size
end

local function flat(key) return redis.call('HGETALL', key) end
