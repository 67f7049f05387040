if state('incarnation') ~= INC then return { 'reset' } end
