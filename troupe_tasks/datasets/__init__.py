"""One module for each published data set: its ``DATASET`` says where its format is documented.

A module here is found by its name alone (``troupe.data.registry``); it imports only the standard
library and Troupe, and its ``convert`` is a pure function of one row.
"""
