-- A new incarnation on this server. Its number starts at a million times the epoch: the store hands out each epoch once,
-- so no number is given twice, not even by a server that lost everything.
-- ARGV: epoch, server, cap, groups, staleness, eval cap, announcement, version, its epoch, digest, dead limit,
--       'keep' | 'restore', then for restore: tick, cursor, cursor value, exhausted, lines, line fields …, counts, name, value …, open …
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
if ARGV[14] == 'restore' then
  for _, group in ipairs(redis.call('HKEYS', OPEN)) do redis.call('DEL', P .. 'group:' .. group) end
  redis.call('DEL', OPEN, COUNTS, P .. 'prompts', P .. 'rollouts', P .. 'scored', P .. 'ledger', P .. 'versions', P .. 'holds', P .. 'evaluations')
  local newest = redis.call('XREVRANGE', P .. 'dead', '+', '-', 'COUNT', 1)
  if #newest == 1 then redis.call('HSET', RUN, 'restored', newest[1][1]) end
  redis.call('HSET', RUN, 'tick', ARGV[15], 'cursor', ARGV[16], 'cursor_value', ARGV[17], 'exhausted', ARGV[18])
  local at, lines = 20, tonumber(ARGV[19])
  for _ = 1, lines do
    redis.call('XADD', P .. 'ledger', ARGV[at] .. '-' .. ARGV[at + 1], 'version', ARGV[at], 'epoch', ARGV[at + 1],
      'parent_epoch', ARGV[at + 2], 'digest', ARGV[at + 3], 'groups', ARGV[at + 4])
    redis.call('HSET', RUN, 'head_epoch', ARGV[at + 1], 'head_digest', ARGV[at + 3])
    at = at + 5
  end
  local counts = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, counts do
    redis.call('HSET', COUNTS, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  for i = at, #ARGV, 2 do redis.call('HSET', OPEN, ARGV[i], ARGV[i + 1]) end
  redis.call('HSET', RUN, 'version', ARGV[10], 'version_epoch', ARGV[11], 'announcement', ARGV[9])
  redis.call('HSET', P .. 'versions', ARGV[10], ARGV[9])
elseif state('version') == '' then
  redis.call('HSET', RUN, 'version', ARGV[10], 'version_epoch', ARGV[11], 'head_epoch', ARGV[11], 'head_digest', ARGV[12], 'cursor', 0,
    'announcement', ARGV[9])
  redis.call('HSET', P .. 'versions', ARGV[10], ARGV[9])
  redis.call('XADD', P .. 'weights', 'MAXLEN', '~', 1000, '*', 'version', ARGV[10], 'epoch', ARGV[11], 'announcement', ARGV[9])
end
for stream, role in pairs(ROLE) do
  local made = redis.pcall('XGROUP', 'CREATE', P .. stream, role, '0', 'MKSTREAM')
  if made.err and not made.err:find('BUSYGROUP') then return redis.error_reply(made.err) end
end
redis.call('HSET', RUN, 'server', ARGV[4], 'cap', ARGV[5], 'groups', ARGV[6], 'staleness', ARGV[7], 'eval_cap', ARGV[8], 'dead_limit', ARGV[13],
  'incarnation', string.format('%d', math.max(tonumber(state('incarnation') == '' and '0' or state('incarnation')), tonumber(INC == '' and '0' or INC), 1000000 * ARGV[3]) + 1))
redis.call('HDEL', RUN, 'finished')
tick()
return { 'done' }
