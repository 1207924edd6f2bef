"""Work over a whole pool, cut into shards: one function, three engines.

A stage of such work is a pure function from arrays to arrays, applied to each shard (`over.over_shards`). ``inline``
runs the shards one after the other in this process, ``process`` in processes of this machine, ``ray`` as tasks of a
cluster. Every engine is given the same shards and returns the same bits.
"""
