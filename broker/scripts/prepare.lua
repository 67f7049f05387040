-- For the manifest of the next version: is our epoch the newest, is every group of the batch live? Then the books.
-- ARGV: epoch, then group, id …
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
local gone = {}
for i = 4, #ARGV, 2 do
  local line = live_line(ARGV[i], 'scored', ARGV[i + 1])
  if not line or line.kind ~= 'train' then gone[#gone + 1] = ARGV[i] end
end
if #gone > 0 then return { 'not_open', gone } end
return { 'done', state('tick'), state('cursor'), state('cursor_value'), state('exhausted'), flat(OPEN), flat(COUNTS) }
