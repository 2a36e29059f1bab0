"""Trained teams to give away: the manifest, cards, and the places that they are sent to.

Imports ``evaluation``, ``spec``, ``durable`` and what stands below them; never a service.
"""
