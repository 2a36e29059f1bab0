"""What runs inside SGLang's own environment: the main script and what a CPU needs beside it.

`launch.py` starts the server, `cpu_shims.py` lets stock SGLang run without a GPU, `kernels/` holds
the stand-in for its compiled kernels, `requirements.txt` is the CPU environment. Nothing of SGLang
is patched on disk, and the rest of Troupe never imports this package.
"""
