-- A buried group is given up: its line and its body go, and it counts as retired, `dropped`.
-- ARGV: group, its line in `dead`
local group, id = ARGV[3], ARGV[4]
local said, why = buried(group, id)
if not said then return { why } end
redis.call('XDEL', P .. 'dead', id)
redis.call('DEL', P .. 'group:' .. group)
if not forgotten(id) then
  count(said.kind .. '.buried', -1)
  count(said.kind .. '.retired.dropped', 1)
end
tick()
return { 'done' }
