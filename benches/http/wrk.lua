-- Requests over all pairs of the keys file, one after the other. Arguments: the keys file and what to ask for
-- (send, inbox or history). Prints one line: requests per second, answers that were no success, median in microseconds.
local threads = 0

function setup(thread)
   thread:set("number", threads)
   threads = threads + 1
end

function init(args)
   requests = {}
   for line in io.lines(args[1]) do
      local from_key, to_key, _, to, session = line:match("(%S+) (%S+) (%S+) (%S+) (%S+)")
      if args[2] == "send" then
         local body = string.format('{"to":"%s","subject":"Load","content":"%s"}', to, string.rep("m", 200))
         local headers = { ["X-API-Key"] = from_key, ["Content-Type"] = "application/json" }
         requests[#requests + 1] = wrk.format("POST", "/messages/send", headers, body)
      elseif args[2] == "inbox" then
         requests[#requests + 1] = wrk.format("GET", "/inbox", { ["X-API-Key"] = to_key })
      else
         local path = "/sessions/" .. session .. "/history?limit=20"
         requests[#requests + 1] = wrk.format("GET", path, { ["X-API-Key"] = to_key })
      end
   end
   -- Threads begin at different pairs.
   at = number * 7
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency)
   local errors = summary.errors
   local bad = errors.status + errors.connect + errors.read + errors.write + errors.timeout
   print(string.format("RESULT %.0f %d %.0f", summary.requests / summary.duration * 1e6, bad, latency:percentile(50)))
end
