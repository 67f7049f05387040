#!lua flags=no-writes
-- Where a run stands, as one cut, at a cost that does not grow with its open groups.
-- ARGV: key prefix of the run, pending entries looked at per stream
local P, MOST = ARGV[1], ARGV[2]
local ROLE = { prompts = 'rollout', rollouts = 'reward', scored = 'trainer' }

local function field(pairs, name)
  for i = 1, #pairs, 2 do if pairs[i] == name then return pairs[i + 1] end end
end

-- The most idle of the oldest pending entries: id, reader, milliseconds, deliveries, its fields.
local function idlest(key, role)
  local worst = {}
  for _, one in ipairs(redis.call('XPENDING', key, role, '-', '+', MOST)) do
    if not worst[3] or one[3] > worst[3] then worst = one end
  end
  if worst[1] then
    local entry = redis.call('XRANGE', key, worst[1], worst[1])
    worst[5] = entry[1] and entry[1][2] or {}
  end
  return worst
end

-- The oldest entry that nobody has read: id, fields.
local function unread(key, role)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if field(group, 'name') == role then
      return redis.call('XRANGE', key, '(' .. field(group, 'last-delivered-id'), '+', 'COUNT', 1)[1] or {}
    end
  end
  return {}
end

-- Length, pending, (reader, pending) of each, the idlest, the oldest unread.
local function stream(name)
  local key, role = P .. name, ROLE[name]
  local length, summary = redis.call('XLEN', key), redis.pcall('XPENDING', key, role)
  if summary.err then return { length, 0, {}, {}, {} } end
  return { length, summary[1], summary[4] or {}, idlest(key, role), unread(key, role) }
end

return {
  redis.call('TIME'),
  redis.call('HGETALL', P .. 'run'),
  redis.call('HGETALL', P .. 'counts'),
  redis.call('HLEN', P .. 'open'),
  redis.call('XLEN', P .. 'dead'),
  redis.call('XREVRANGE', P .. 'dead', '+', '-', 'COUNT', 1)[1] or {},
  redis.call('HGETALL', P .. 'beats'),
  stream('prompts'), stream('rollouts'), stream('scored'),
}
