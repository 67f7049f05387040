-- Versions that are neither live, kept nor held stop being servable; their announcements are returned.
-- ARGV: epoch, kept version …
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
redis.call('ZREMRANGEBYSCORE', P .. 'holds', '-inf', '(' .. now())
local kept = { [state('version')] = true }
for i = 4, #ARGV do kept[ARGV[i]] = true end
for _, claim in ipairs(redis.call('ZRANGE', P .. 'holds', 0, -1)) do kept[claim:match('^(%d+) ')] = true end
local gone, all = {}, flat(P .. 'versions')
for i = 1, #all, 2 do
  if not kept[all[i]] then
    redis.call('HDEL', P .. 'versions', all[i])
    gone[#gone + 1] = all[i + 1]
  end
end
return { 'done', gone }
