-- A buried group goes to `prompts` again as if it were new: its prompt, a new floor, a place below the cap.
-- ARGV: group, its line in `dead`, entry values, entry …
local group, id, entries = ARGV[3], ARGV[4], tonumber(ARGV[5])
local said, why = buried(group, id)
if not said then return { why } end
if said.kind ~= 'train' then return { 'measured' } end
if state('finished') ~= '' then return { 'finished' } end
if forgotten(id) then return { 'forgotten' } end
if redis.call('EXISTS', P .. 'group:' .. group) == 0 then return { 'gone' } end
if tonumber(redis.call('HGET', COUNTS, 'train.open') or '0') >= tonumber(state('cap')) then return { 'full' } end
local floor = state('version')
local line = { kind = 'train', floor = floor, last = string.format('%d', tonumber(floor) + tonumber(state('staleness'))) }
local size = only_prompt(group)
point(group, 'prompts', append('prompts', 6, entries, line.floor, line.last, size), line)
redis.call('XDEL', P .. 'dead', id)
count('train.buried', -1)
count('train.open', 1)
tick()
return { 'done' }
