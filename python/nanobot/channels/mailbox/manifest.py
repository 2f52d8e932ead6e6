"""What nanobot's settings page and `nanobot plugins list` show of the channel."""

from nanobot.channels.contracts import ChannelFieldSpec, ChannelSetupSpec, SetupRequirement
from nanobot.channels.plugin import ChannelPlugin

_TEXT, _LIST, _BOOL = ChannelFieldSpec(), ChannelFieldSpec(kind="list"), ChannelFieldSpec(kind="bool")

PLUGIN = ChannelPlugin(
    name="mailbox",
    display_name="Mailbox",
    runtime="nanobot.channels.mailbox.runtime:MailboxChannel",
    setup=ChannelSetupSpec(
        fields={
            "agentId": _TEXT,
            "description": _TEXT,
            "capabilities": _LIST,
            "allowFrom": ChannelFieldSpec(kind="list", default=["*"]),
            "maxConcurrentTasks": ChannelFieldSpec(kind="int", default=3),
            "pollInterval": ChannelFieldSpec(kind="float", default=5.0),
            "mailboxesRoot": ChannelFieldSpec(default="~/.nanobot/mailboxes"),
            "serverUrl": _TEXT,
            "apiKey": ChannelFieldSpec(kind="secret"),
            "transcripts": _BOOL,
        },
        required=(SetupRequirement.one_of(("agentId",), ("serverUrl",)),),
    ),
)
