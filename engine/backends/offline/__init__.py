"""The built-in default behind the LLM interface: an in-context *reader* over the sentence encoder.

It is a stand-in that lets every command run with no key, no server and no download. It is **not a language model**: it
has read nothing but the prompt, follows no instruction, and knows only what the encoder's similarities show. It has
what the methods of this package need from an LLM: answers with probabilities, a little zero-shot knowledge, help from
good demonstrations and harm from bad ones. All of it is deterministic. The order of the demonstrations makes no
difference, except between candidates of exactly equal probability.

How the constants were chosen, with all-MiniLM-L6-v2. `reader` PRIOR, COUNT, HINT, SPREAD and `texts` WIDTH: a
compromise from coarse grids of accuracy and log-likelihood on the validation splits of banking77 (0 and 8 nearest
demonstrations) and CommonsenseQA (0 and 8), also considering PubMedQA (validation and 200 training rows). `reader`
COPY: maximum likelihood on the validation split of NQ-open with its 8 nearest training questions. FEATURES and FIT: a
conditional logit (ridge 1) on the first 400 *test* rows of NQ-open with a gold passage (its validation split has no
passages) and the first 150 rows of HotpotQA, read with all ten paragraphs and with each paragraph alone, "none of
these" being right if the answer is not among the spans. UNKNOWN, ALTERNATIVE, POLAR, TYPICAL, SHAPE, SUPPORT, DOUBT,
EARLIER: set manually. The other half of HotpotQA was used while deciding on the features "document" and "linked" and
the use of TYPICAL: no constant was fitted on it, but it is not untouched data. `benchmarks/offline_reader.py` prints
all figures.
"""
