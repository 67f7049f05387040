-- Facts only the trainer states. ARGV: epoch, 'evaluation' version groups hold | 'finish' reason | 'trim' version
if ARGV[3] ~= state('epoch') then return { 'fenced', state('epoch') } end
if ARGV[4] == 'evaluation' then
  redis.call('HSET', P .. 'evaluations', ARGV[5] .. '.wanted', ARGV[6])
  redis.call('ZADD', P .. 'holds', now() + tonumber(ARGV[7]), ARGV[5] .. ' evaluation')
elseif ARGV[4] == 'finish' then redis.call('HSET', RUN, 'finished', ARGV[5])
elseif ARGV[4] == 'trim' then redis.call('XTRIM', P .. 'ledger', 'MINID', ARGV[5] .. '-0') end
return { 'done' }
