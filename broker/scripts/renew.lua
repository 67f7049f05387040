-- Our pending entries become young again; what another reader adopted stays theirs.
-- ARGV: stream, reader, id …
local stream, reader, renewed = ARGV[3], ARGV[4], 0
for i = 5, #ARGV do
  if owned(stream, ARGV[i], reader) then
    redis.call('XCLAIM', P .. stream, ROLE[stream], reader, 0, ARGV[i], 'JUSTID')
    renewed = renewed + 1
  end
end
return { 'done', renewed }
