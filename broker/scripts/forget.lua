-- Versions that are neither live, kept nor held stop being servable; their announcements are returned.
-- ARGV: epoch, seconds now ('': the server's), 1: only answer, kept version …
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
redis.call('ZREMRANGEBYSCORE', P .. 'holds', '-inf', '(' .. (ARGV[4] == '' and now() or ARGV[4]))
local kept = { [state('version')] = true }
for i = 6, #ARGV do kept[ARGV[i]] = true end
for _, claim in ipairs(redis.call('ZRANGE', P .. 'holds', 0, -1)) do kept[claim:match('^(%d+) ')] = true end
local gone, all = {}, flat(P .. 'versions')
for i = 1, #all, 2 do
  if not kept[all[i]] then
    if ARGV[5] ~= '1' then redis.call('HDEL', P .. 'versions', all[i]) end
    gone[#gone + 1] = all[i + 1]
  end
end
return { 'done', gone }
