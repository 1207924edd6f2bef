"""The tabs of ``icl-curate review``, one module each; `ROOMS` of `app.py` lists them in their order."""
