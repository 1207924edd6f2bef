"""Adapters: the selection of a workspace inside LangChain, DSPy and LlamaIndex. Each needs its own library."""
