"""Task families of other libraries' environments, each by its name: ``reasoning_gym:countdown``.

The library runs in a process of its own, with the interpreter that it is installed for; ``guest``
holds what runs there. Nothing here imports such a library.
"""
