from nanobot.channels.contracts import ChannelSetupSpec
from nanobot.channels.plugin import ChannelPlugin

PLUGIN = ChannelPlugin(
    name="groupchat",
    display_name="Group chat of the test",
    runtime="nanobot.channels.groupchat.runtime:GroupChatChannel",
    setup=ChannelSetupSpec(fields={}),
)
