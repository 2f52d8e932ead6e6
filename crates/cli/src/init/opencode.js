// Written by `amb init opencode`, and removed by `amb init opencode --undo`: wakes opencode when there is mail.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const LONGEST_LINE = 2000
const LONGEST_WAIT = 60_000

export const AgentMailbox = async ({ client }) => {
  // The session that was active last; those of subagents are not for mail.
  let session, waiting
  const subagents = new Set()

  const ring = async (line) => {
    if (!session) {
      waiting = line
      return
    }
    waiting = undefined
    try {
      await client.session.promptAsync({ path: { id: session }, body: { parts: [{ type: "text", text: line }] } })
    } catch {
      // The mail stays unread; the next wake-up counts it.
      waiting = line
    }
  }

  let child
  const watch = (wait) => {
    const begun = Date.now()
    // It ends by itself when opencode is gone.
    child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["ignore", "pipe", "ignore"] })
    let rest = ""
    child.stdout.setEncoding("utf8")
    child.stdout.on("data", (some) => {
      const lines = (rest + some).split("\n")
      rest = lines.pop().slice(0, LONGEST_LINE)
      const last = lines.filter((line) => line.trim()).pop()
      if (last) ring(last.slice(0, LONGEST_LINE))
    })
    const again = () => {
      const next = Date.now() - begun > LONGEST_WAIT ? 1000 : Math.min(wait * 2, LONGEST_WAIT)
      setTimeout(() => watch(next), wait).unref()
    }
    child.once("error", again)
    child.once("exit", again)
    child.unref()
  }
  watch(1000)
  process.once("exit", () => child?.kill())

  return {
    event: async ({ event }) => {
      const about = event.properties ?? {}
      if (event.type === "session.created" && about.info?.parentID) subagents.add(about.info.id)
      if (!["session.created", "session.status", "session.idle"].includes(event.type)) return
      const id = about.sessionID ?? about.info?.id
      if (!id || subagents.has(id)) return
      session = id
      if (waiting && event.type !== "session.created") await ring(waiting)
    },
  }
}
