"""State machines that pass messages; know neither sockets, threads nor clocks.

A role is one generator that reads like its part of the protocol:

    proposals = yield from self.gather(ProposeSplits, self.servers, tree=tree, level=level)
    self.send("worker 0,1", ApplySplits(...))

and `role.handle(sender, message) -> [(receiver, message), ...]` runs it as far as the messages at hand allow. A driver may
take each message as soon as it is made instead (`role.post_by`).
"""
