"""What the user can do about a failure that ends the work."""

from __future__ import annotations

from ..base.errors import LLMError
from ..http.refusals import Failure, explained

NO_KEY_FIX = "export OPENAI_API_KEY=…, or use your own server with --base-url URL"
NO_ANSWER_FIX = "start the server or correct --base-url"
FIXES = {
    "timeout": "lower --concurrency, or raise the timeout (ICL_CURATE_TIMEOUT=SECONDS)",
    "wait": "run the same command again after that; answers are kept",
    "unreachable": NO_ANSWER_FIX,
    "transient": NO_ANSWER_FIX,
    "auth": NO_KEY_FIX,
    "quota": "add credit to the account, or choose another LLM with --llm",
    "not_found": "check the model name, and that --base-url ends in /v1 if the server needs it",
    "redirect": "to use that server, give it with --base-url URL",
    "capability": "choose another LLM with --llm",
    "rate_limit": "wait, or lower --concurrency",
    "context": "use fewer demonstrations (-k) or a model with a longer context",
}


def explain(failure: Failure, llm: str) -> LLMError:
    """The error for a failure that ends the work, with its fix."""
    return explained(failure, llm, FIXES)
