-- One batch becomes one ledger line and one live version; its groups are settled and closed. Whole or not at all.
-- ARGV: our epoch, version, its epoch, parent epoch, digest, announcement, group names, evaluate, hold seconds,
--       then group, id …
local epoch, version, vepoch, parent, digest = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
if epoch ~= state('epoch') then return { 'fenced', state('epoch') } end
if state('version') == version and state('head_epoch') == vepoch and state('head_digest') == digest then
  local head = redis.call('XREVRANGE', P .. 'ledger', '+', '-', 'COUNT', 1)
  if #head == 1 and head[1][2][10] == ARGV[9] and head[1][2][6] == parent then return { 'done', 'again' } end
end
if tonumber(state('version')) + 1 ~= tonumber(version) or state('version_epoch') ~= parent then
  return { 'not_parent', state('version'), state('version_epoch') }
end
local gone = {}
for i = 12, #ARGV, 2 do
  local line = live_line(ARGV[i], 'scored', ARGV[i + 1])
  if not line or line.kind ~= 'train' then gone[#gone + 1] = ARGV[i] end
end
if #gone > 0 then return { 'not_open', gone } end

redis.call('XADD', P .. 'ledger', version .. '-' .. vepoch, 'version', version, 'epoch', vepoch, 'parent_epoch', parent,
  'digest', digest, 'groups', ARGV[9])
redis.call('HSET', RUN, 'version', version, 'version_epoch', vepoch, 'head_epoch', vepoch, 'head_digest', digest,
  'announcement', ARGV[8])
redis.call('HSET', P .. 'versions', version, ARGV[8])
redis.call('XADD', P .. 'weights', 'MAXLEN', '~', 1000, '*', 'version', version, 'epoch', vepoch, 'announcement', ARGV[8])
for i = 12, #ARGV, 2 do
  local line = line_of(ARGV[i])
  settle('scored', ARGV[i + 1])
  close(ARGV[i], line)
  redis.call('DEL', P .. 'group:' .. ARGV[i])
end
count('train.trained', (#ARGV - 11) / 2)
if tonumber(ARGV[10]) > 0 then
  redis.call('HSET', P .. 'evaluations', version .. '.wanted', ARGV[10])
  redis.call('ZADD', P .. 'holds', now() + tonumber(ARGV[11]), version .. ' evaluation')
end
tick()
return { 'done', 'now' }
