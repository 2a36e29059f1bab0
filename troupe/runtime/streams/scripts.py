"""The ledger's atomic changes, as Lua. Each one is safe to run twice.

KEYS and ARGV are listed at each script. Every change adds one entry to the changes stream, which
is what ``StepLedger.wait_change`` waits for. A script for a change that only the job's conductor
or its trainer may make begins with ``FENCE`` (after ``WHEN_FULL``, where that is): it is refused to
a superseded process.
"""

from troupe.runtime.streams.fencing import FENCE
from troupe.runtime.streams.redis import WHEN_FULL
from troupe.runtime.streams.versions import RECORD_VERSION

_CHANGED = """
local function changed(key, what) redis.call('XADD', key, 'MAXLEN', 1, '*', 'w', what) end
"""

_PUT = f"""
local function put(key, ...) redis.call('XADD', key, '*', 'v', '{RECORD_VERSION}', ...) end
"""

OPEN_ROUND = (
    FENCE
    + _CHANGED
    + _PUT
    + """
-- KEYS round tickets changes; ARGV kind step opened_at round_id workers_group payload...
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'kind', ARGV[1], 'step', ARGV[2], 'opened_at', ARGV[3],
           'num_tickets', #ARGV - 5, 'num_done', 0, 'num_dropped', 0)
for i = 6, #ARGV do put(KEYS[2], 'p', ARGV[i]) end
changed(KEYS[3], ARGV[4])
return 1
"""
)

_FINISH = (
    _CHANGED
    + _PUT
    + """
local function acked(stream, group, entry_id)
  if entry_id ~= '' then
    redis.call('XACK', stream, group, entry_id)
    redis.call('XDEL', stream, entry_id)
  end
end
-- Whether this ticket is finished now for the first time.
local function first(round, done, ticket_id)
  local state = redis.call('HMGET', round, 'num_tickets', 'num_done', 'num_dropped')
  if not state[1] then return false end
  if tonumber(state[2]) + tonumber(state[3]) >= tonumber(state[1]) then return false end
  return redis.call('SADD', done, ticket_id) == 1
end
-- Counts a ticket as ``how``; the one that completes the round gives it ``completed_at``.
local function count(round, how)
  redis.call('HINCRBY', round, how, 1)
  local state = redis.call('HMGET', round, 'num_tickets', 'num_done', 'num_dropped')
  if tonumber(state[2]) + tonumber(state[3]) < tonumber(state[1]) then return end
  local now = redis.call('TIME')
  redis.call('HSET', round, 'completed_at', string.format('%d.%06d', now[1], now[2]))
end
"""
)

COMPLETE_TICKET = (
    _FINISH
    + """
-- KEYS round done tickets episodes changes groups...
-- ARGV ticket_id entry_id workers_group episode round_id (key_index policy payload)...
local is_first = first(KEYS[1], KEYS[2], ARGV[1])
if is_first then
  for i = 6, #ARGV, 3 do
    put(KEYS[tonumber(ARGV[i])], 'p', ARGV[i + 2], 'r', ARGV[5])
    redis.call('HINCRBY', KEYS[1], 'groups:' .. ARGV[i + 1], 1)
  end
  put(KEYS[4], 'p', ARGV[4])
  count(KEYS[1], 'num_done')
  changed(KEYS[5], ARGV[5])
end
acked(KEYS[3], ARGV[3], ARGV[2])
return is_first and 1 or 0
"""
)

DROP_TICKET = (
    _FINISH
    + """
-- KEYS round done tickets episodes changes dead
-- ARGV ticket_id entry_id workers_group episode round_id ticket reason
local is_first = first(KEYS[1], KEYS[2], ARGV[1])
if is_first then
  put(KEYS[4], 'p', ARGV[4])
  redis.call('XADD', KEYS[6], 'MAXLEN', '~', 10000, '*', 'p', ARGV[6], 'reason', ARGV[7],
             'entry_id', ARGV[2])
  count(KEYS[1], 'num_dropped')
  redis.call('HSET', KEYS[1], 'last_drop', ARGV[7])
  changed(KEYS[5], ARGV[5])
end
acked(KEYS[3], ARGV[3], ARGV[2])
return is_first and 1 or 0
"""
)

COUNT_FAILURE = """
-- KEYS round; ARGV ticket_id reason failure_id. A round that is gone keeps no count.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
local count, last = 'failed:' .. ARGV[1], 'last_failure_id:' .. ARGV[1]
if redis.call('HGET', KEYS[1], last) ~= ARGV[3] then
  redis.call('HSET', KEYS[1], 'last_failure', ARGV[2], last, ARGV[3])
  redis.call('HINCRBY', KEYS[1], count, 1)
end
return tonumber(redis.call('HGET', KEYS[1], count))
"""

MARK_RECORDED = (
    WHEN_FULL
    + FENCE
    + _CHANGED
    + """
-- KEYS round done episodes changes; ARGV round_id. A complete round needs no list of its tickets.
local state = redis.call('HMGET', KEYS[1], 'num_tickets', 'num_done', 'num_dropped')
if not state[1] then return -1 end
if tonumber(state[2]) + tonumber(state[3]) < tonumber(state[1]) then return -2 end
redis.call('HSET', KEYS[1], 'is_recorded', 1)
redis.call('DEL', KEYS[2], KEYS[3])
changed(KEYS[4], ARGV[1])
return 1
"""
)

CUT_ROUND = (
    FENCE
    + _CHANGED
    + """
-- KEYS round changes; ARGV round_id. A round that is gone is cut by nobody.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'is_cut', 1)
changed(KEYS[2], ARGV[1])
return 1
"""
)

COMMIT_VERSION = (
    WHEN_FULL
    + FENCE
    + _CHANGED
    + """
-- KEYS ledger changes; ARGV policy version digest. Returns the version that is there when it is a
-- higher one, and -2 when it is this one with other weights.
local now = redis.call('HGET', KEYS[1], 'version:' .. ARGV[1])
if now and tonumber(now) > tonumber(ARGV[2]) then return tonumber(now) end
if now == ARGV[2] then
  return redis.call('HGET', KEYS[1], 'digest:' .. ARGV[1]) == ARGV[3] and -1 or -2
end
redis.call('HSET', KEYS[1], 'version:' .. ARGV[1], ARGV[2], 'digest:' .. ARGV[1], ARGV[3])
changed(KEYS[2], ARGV[1])
return -1
"""
)

SET_RESULT = (
    WHEN_FULL
    + FENCE
    + _CHANGED
    + """
-- KEYS ledger changes; ARGV field result
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
changed(KEYS[2], 'result')
return 1
"""
)

FAIL = (
    WHEN_FULL
    + FENCE
    + _CHANGED
    + """
-- KEYS ledger changes; ARGV reason
if redis.call('HSETNX', KEYS[1], 'failure', ARGV[1]) == 1 then changed(KEYS[2], 'failure') end
return 1
"""
)
