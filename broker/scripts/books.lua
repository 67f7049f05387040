-- Cursor, open set and counts, as one consistent cut.
return { 'done', state('tick'), state('cursor'), state('cursor_value'), state('exhausted'), flat(OPEN), flat(COUNTS) }
