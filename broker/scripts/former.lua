-- Readers that a slot has had on a stream: a fleet has many, and each start asks for its own. ARGV: stream, slot
local names = {}
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', P .. ARGV[3], ROLE[ARGV[3]])) do
  local name = one[2]
  if name:match('^(.*)%.[^.]*$') == ARGV[4] then names[#names + 1] = name end
end
return { 'done', names }
