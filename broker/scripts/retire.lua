-- The group leaves the open set for a reason that is not an error.
-- ARGV: group, stream, id, reason, epoch (trainers; '' for others), then name, number … added to its evaluation
local group, stream, id, reason, epoch = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
if epoch ~= '' and epoch ~= state('epoch') then return { 'fenced', state('epoch') } end
local line = live_line(group, stream, id)
if not line then return { 'superseded' } end
if line.kind == 'eval' then
  for i = 8, #ARGV, 2 do
    redis.call('HINCRBYFLOAT', P .. 'evaluations', line.floor .. '.' .. ARGV[i], ARGV[i + 1])
  end
end
settle(stream, id)
close(group, line)
redis.call('DEL', P .. 'group:' .. group)
count(line.kind .. '.retired.' .. reason, 1)
tick()
return { 'done' }
