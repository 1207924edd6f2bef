"""The tabs of ``icl-curate review``, one module each; `TABS` of `app.py` lists them in their order."""
