-- Where a slot is wanted. ARGV: key prefix, slot, pool, epoch the caller read, leader, its epoch ('' for a person),
-- pin ('pin' | 'unpin' | ''), reason, by, seconds that a scheduler's move is remembered (0: it counts as none), most
-- slots the pool may have ('' for no limit), epoch it shall have, which is newer ('' for the next)
local P, key = ARGV[1], ARGV[1] .. 'slot:' .. ARGV[2]
local function field(name) return redis.call('HGET', key, name) or '' end
if ARGV[5] ~= '' then
  local holder, epoch = redis.call('HGET', P .. 'leader', 'holder') or '', redis.call('HGET', P .. 'leader', 'epoch') or '0'
  if holder ~= ARGV[5] or epoch ~= ARGV[6] then return { 'fenced', holder, epoch } end
  if field('pinned') ~= '' then return { 'pinned', field('pool'), field('epoch') } end
end
local epoch = tonumber(field('epoch') == '' and '0' or field('epoch'))
if epoch ~= tonumber(ARGV[4]) then return { 'stale', field('pool'), epoch } end
if ARGV[3] ~= '' and ARGV[11] ~= '' then
  local has = {}
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'slots')) do
    if name ~= ARGV[2] and redis.call('HGET', P .. 'slot:' .. name, 'pool') == ARGV[3] then has[#has + 1] = name end
  end
  table.sort(has)
  if #has >= tonumber(ARGV[11]) then return { 'full', table.concat(has, ', '), epoch } end
end
local time, next = redis.call('TIME'), math.max(epoch + 1, tonumber(ARGV[12]) or 0)
redis.call('HSET', key, 'pool', ARGV[3], 'epoch', next, 'reason', ARGV[8], 'by', ARGV[9], 'at', time[1])
if ARGV[5] ~= '' and tonumber(ARGV[10]) > 0 then
  redis.call('ZREMRANGEBYSCORE', P .. 'moves', '-inf', time[1] - ARGV[10])
  redis.call('ZADD', P .. 'moves', time[1] + time[2] / 1000000, ARGV[2] .. ' ' .. next)
end
if ARGV[7] == 'pin' then redis.call('HSET', key, 'pinned', '1') elseif ARGV[7] == 'unpin' then redis.call('HDEL', key, 'pinned') end
redis.call('SADD', P .. 'slots', ARGV[2])
return { 'done', ARGV[3], next }
