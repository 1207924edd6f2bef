"""A hook of mkdocs: classes that docstrings name lead to where the API reference describes them."""

import re
from typing import Any


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Links from `Name` to its heading on the same page; HTML of other pages as it is."""
    if page.file.src_uri != "reference/python.md":
        return html
    places = {place.rpartition(".")[2]: place for place in re.findall(r'id="(icl_curate\.[\w.]+)"', html)}
    return re.sub(
        r"<code>([A-Z]\w+)</code>",
        lambda match: f'<a href="#{places[match[1]]}">{match[0]}</a>' if match[1] in places else match[0],
        html,
    )
