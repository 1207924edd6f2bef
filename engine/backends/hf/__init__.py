"""``hf:NAME_OR_PATH``: a causal language model of the transformers library, on this machine.

What few-shot prompts share is computed once: requests whose prompts differ only in the last turn share their leading
tokens, which are run through the model a single time. Options are then scored as a tree on that cached prefix: one row
holds the rest of a prompt and all of its options, and an attention mask lets each option see only the prompt and
itself. The log-probabilities are those of encoding prompt and option together and running each pair alone (the tests
compare the two).

Every number comes from a float32 log-softmax over unprocessed logits, at temperature 1, whatever the sampling.
"""
