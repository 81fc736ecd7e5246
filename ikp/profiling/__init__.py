"""The user's host API: ``profile`` (sessions), ``capture``, ``gather`` and ``instrument``."""
