"""Work over a whole pool, cut into shards: one function, two engines.

A stage of such work is a pure function from arrays to arrays, applied to each shard (`over.over_shards`). ``inline``
runs the shards one after the other in this process, ``ray`` as tasks of a cluster, which may be this machine alone.
Both are given the same shards and return the same bits.
"""
