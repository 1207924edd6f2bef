"""The registered domain of a web address: the unit that a site's owner controls."""

from __future__ import annotations

import re

# Labels under which country registries sell names one level down (co.uk, com.au, ac.jp …). The full list of public
# suffixes has thousands of entries and changes weekly; these are the labels common to most such registries, and
# additions of some large ones. Of the 2,657 websites in the wikifact logs one differs from the full list (of a state of
# Australia, below gov.au): not enough for a package that brings the list and an HTTP client to renew it (tldextract).
# A label that is also a well-known site somewhere (web.de, id.me) is listed with its country only.
_CUSTOMARY = frozenset(
    {"ac", "co", "com", "ed", "edu", "go", "gob", "gouv", "gov", "govt", "gub", "mil", "ne", "net", "nom", "or", "org"}
)
_OWN = {
    "au": {"asn", "id"},
    "br": {"adv", "art", "blog", "eco", "eng", "ind", "inf", "jus", "leg", "med", "mp", "pro"},
    "ca": {"gc"},
    "id": {"desa", "my", "sch", "web"},
    "in": {"firm", "gen", "ind", "nic", "res"},
    "nz": {"cri", "gen", "geek", "iwi", "kiwi", "maori", "school"},
    "tw": {"idv"},
    "ua": {"in"},
    "uk": {"ltd", "me", "nhs", "plc", "police", "sch"},
    "za": {"law", "school", "web"},
}
_SCHEME = re.compile(r"^[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
_ADDRESS = re.compile(r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])$", re.IGNORECASE)


def registered_domain(address: str) -> str:
    """``https://news.bbc.co.uk/x`` → ``bbc.co.uk``; an IP address, or anything that is not a host name, is returned
    unchanged.

    A country-code domain is assumed to sell names at the third level if its second label is a usual one (``co``,
    ``com``, ``ac`` …). Private suffixes (github.io, blogspot.com) count as the domain of their owner.
    """
    host = re.split(r"[/?#\\]", _SCHEME.sub("", address.strip()).removeprefix("//"), maxsplit=1)[0]
    host = host.rpartition("@")[2].lower()
    if not host.startswith("["):
        host = host.partition(":")[0]
    host = host.rstrip(".")
    labels = host.split(".")
    if len(labels) < 2 or _ADDRESS.match(host) or not all(labels) or " " in host:
        return host if _ADDRESS.match(host) else address
    keep = 3 if len(labels) > 2 and _sells_below(labels[-2], labels[-1]) else 2
    return ".".join(labels[-keep:])


def _sells_below(second: str, top: str) -> bool:
    return len(top) == 2 and (second in _CUSTOMARY or second in _OWN.get(top, ()))
