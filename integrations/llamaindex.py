"""LlamaIndex: a retriever of demonstrations.

from icl_curate.integrations.llamaindex import CurateRetriever

nodes = CurateRetriever(".icl-curate", method="topick", k=5).retrieve("my card was declined")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ..engine.select.selector import Selected, Selector, besides


class CurateRetriever(BaseRetriever):
    """The demonstrations of a workspace as nodes, best first: the text is the input, the metadata has ``output``,
    ``source`` and, where a row has them, ``options``, ``context`` and ``history``. ``selection`` is what `Selector`
    takes."""

    def __init__(self, workspace: Path | str, **selection: Any) -> None:
        self.selector = Selector(workspace, **selection)
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(each) for each in self.selector.select(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(each) for each in await self.selector.aselect(query_bundle.query_str)]


def _node(selected: Selected) -> NodeWithScore:
    shown = selected.demonstration
    told = {"output": shown.output, "source": shown.source, **besides(shown)}
    node = TextNode(id_=shown.id, text=shown.input, metadata=told)
    return NodeWithScore(node=node, score=selected.score)
