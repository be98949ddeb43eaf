"""State machines that pass messages; know neither sockets, threads nor clocks.

A level of a tree, on a grid of blocks:

    worker (r, c)                            server s                               server 0
    histograms of the smaller
    children, of its own block
       -- PushHistograms (its features) -->  sums over row shards,
                                             siblings are parent - child,
                                             best splits of its features
                                                -- ProposeSplits -->                chooses
       <-- ApplySplits (all others) --------------------------------------------------
    bits of rows that leave their
    default child by its features
       -- PushBitvectors --> workers (r, *)
    ANDs them, moves rows to children

and the end of a tree:

    worker (r, 0)                            coordinator                            server 0
                                                <-- PushSplits (of all levels) ------
       -- PushLeafSums -->                   the tree, its leaves' values
       <-- CloseTree (all workers) --------

With one row shard a worker has its features' whole histograms: it proposes itself, and worker 0,0 chooses. Rings
(ring_worker.py) have no servers, and all choose. A worker that is alone asks nobody between root and leaves, and grows trees
that are not deep in one go (boosting/levels.py). What comes before the first tree: dealing.py, worker.py.

A role is one generator that reads like its part of the protocol:

    pushed = yield from self.gather(PushHistograms, self._workers, tree=tree, level=level)
    self.send("server 0", ProposeSplits(...))

and `role.handle(sender, message) -> [(receiver, message), ...]` runs it as far as the messages at hand allow. A driver may
take each message as soon as it is made instead (`role.post_by`).
"""
