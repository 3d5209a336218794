"""The Lua scripts that fence the leader (wire.md, Leadership and fencing). Text only; the store runs them.

``FENCED`` takes any number of commands, flattened: for each the count of its words, then the words.
The pseudo command ``SNAPSHOT field version payload notice`` writes a snapshot only when
``(epoch, version)`` is above what ``versions`` has; it uses KEYS[2] (versions), KEYS[3] (the
snapshot's key) and KEYS[4] (the feed channel).
"""

from __future__ import annotations

from collections.abc import Sequence

#: KEYS leader, epoch. ARGV instance, lease in ms, floor.
#: Returns {1, epoch, now in ms} when taken, {0, the leader's value} when somebody leads.
TAKE_OVER = """
local held = redis.call('GET', KEYS[1])
if held then return {0, held} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local stored = tonumber(redis.call('GET', KEYS[2]) or '0')
local epoch = string.format('%.0f', math.max(stored + 1, now, tonumber(ARGV[3]) + 1))
redis.call('SET', KEYS[2], epoch)
redis.call('SET', KEYS[1], ARGV[1] .. '/' .. epoch, 'PX', ARGV[2])
return {1, epoch, string.format('%.0f', now)}
"""

#: KEYS leader. ARGV own whole value, lease in ms. Returns {1, now in ms} or {0, value or ''}.
RENEW = """
local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then return {0, held or ''} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local t = redis.call('TIME')
return {1, string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))}
"""

#: KEYS leader. ARGV own whole value. Gives the lease back at a clean end.
RESIGN = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""

#: KEYS epoch, then (for a SNAPSHOT) versions, snapshot, feed, then every other key that is written.
#: ARGV epoch, then the commands. Returns {1, reply...} or {0, stored epoch or ''} and nothing done.
FENCED = """
local stored = redis.call('GET', KEYS[1])
if stored ~= ARGV[1] then return {0, stored or ''} end
local replies = {1}
local i = 2
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  local words = {}
  for j = 1, n do words[j] = ARGV[i + j] end
  i = i + n + 1
  if words[1] == 'SNAPSHOT' then
    local have = redis.call('HGET', KEYS[2], words[2])
    local older = true
    if have then
      local e, v = string.match(have, '^(%d+) (%d+)$')
      e, v = tonumber(e), tonumber(v)
      local mine = tonumber(ARGV[1])
      older = e < mine or (e == mine and v < tonumber(words[3]))
    end
    if older then
      redis.call('SET', KEYS[3], words[4])
      redis.call('HSET', KEYS[2], words[2], ARGV[1] .. ' ' .. words[3])
      redis.call('PUBLISH', KEYS[4], words[5])
    end
    replies[#replies + 1] = older and 1 or 0
  else
    replies[#replies + 1] = redis.call(unpack(words))
  end
end
return replies
"""


def flatten(commands: Sequence[Sequence[str | bytes | int]]) -> list[str | bytes | int]:
    """Commands in the form FENCED takes: each preceded by the count of its words."""
    words: list[str | bytes | int] = []
    for command in commands:
        words.append(len(command))
        words.extend(command)
    return words
